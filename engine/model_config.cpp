// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/strings.h"

namespace triptych {
namespace {

struct NamedSize {
  const char* name;
  int64_t value;
};

constexpr std::array<ModelFamily, 4> kFamilies = {{
    {.name = "llama", .hf_class = "LlamaForCausalLM", .gguf_rope = RopeKind::kInterleaved},
    {.name = "mistral", .hf_class = "MistralForCausalLM"},  // in GGUF files it is called llama
    {.name = "qwen2",
     .hf_class = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .gguf_rope = RopeKind::kHalfSplit},
    {.name = "qwen3",
     .hf_class = "Qwen3ForCausalLM",
     .qk_norm = true,
     .gguf_rope = RopeKind::kHalfSplit},
}};

Status validate_window(const ModelConfig& config, const std::string& where) {
  const auto bad = [&](const char* field, int64_t value, const std::string& expected) {
    return fail(
        ErrorCode::kCorrupt,
        str_format("%s is %lld, expected ", field, static_cast<long long>(value)) + expected,
        where);
  };
  if (config.sliding_window < 0 || config.sliding_window >= int64_t{1} << 31) {
    return bad("sliding_window", config.sliding_window, "0 (none) to 2^31 - 1");
  }
  if (config.first_window_layer < 0) {
    return bad("max_window_layers", config.first_window_layer, "at least 0");
  }
  const auto listed = static_cast<int64_t>(config.window_layers.size());
  if (listed != 0 && listed != config.num_layers) {
    return bad("number of layer_types", listed,
               "one a layer, " + std::to_string(config.num_layers));
  }
  return {};
}

Status validate_rope(const ModelConfig& config, std::string_view where) {
  const auto bad = [&](const char* field, double value, const char* expected) {
    return fail(ErrorCode::kCorrupt, str_format("%s is %g, expected %s", field, value, expected),
                std::string(where));
  };
  const auto positive = [](double value) { return std::isfinite(value) && value > 0.0; };
  if (!positive(config.rope_theta)) return bad("rope_theta", config.rope_theta, "> 0");
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == RopeScalingKind::kNone) return {};
  if (!positive(scaling.factor)) return bad("rope scaling factor", scaling.factor, "> 0");
  if (scaling.kind == RopeScalingKind::kLinear) return {};
  if (!positive(scaling.low_freq_factor)) {
    return bad("low_freq_factor", scaling.low_freq_factor, "> 0");
  }
  // The blend between the two bands divides by their difference.
  if (!positive(scaling.high_freq_factor - scaling.low_freq_factor)) {
    return bad("high_freq_factor", scaling.high_freq_factor, "more than low_freq_factor");
  }
  // A number of positions: whole, and of the size that max_position may have.
  if (!positive(scaling.original_max_position) || scaling.original_max_position >= 0x1p31) {
    return bad("original_max_position_embeddings", scaling.original_max_position,
               "more than 0 and below 2^31");
  }
  return {};
}

}  // namespace

int64_t ModelConfig::window(int64_t layer) const {
  const bool windowed = window_layers.empty() ? layer >= first_window_layer
                                              : window_layers[static_cast<size_t>(layer)];
  return windowed ? sliding_window : 0;
}

int64_t ModelConfig::attended_tokens(int64_t context) const {
  int64_t total = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const int64_t most = window(layer);
    total += most > 0 ? std::min(most, context) : context;
  }
  return total;
}

int64_t ModelConfig::num_vector_parameters() const {
  const int64_t biases = qkv_bias ? (num_q_heads + 2 * num_kv_heads) * head_dim : 0;
  const int64_t head_norms = qk_norm ? 2 * head_dim : 0;
  return num_layers * (2 * hidden_size + biases + head_norms) + hidden_size;
}

int64_t ModelConfig::num_parameters() const {
  const int64_t q = num_q_heads * head_dim;
  const int64_t kv = num_kv_heads * head_dim;
  const int64_t attention = hidden_size * (2 * q + 2 * kv);
  const int64_t mlp = 3 * hidden_size * intermediate_size;
  const int64_t tables = (tie_word_embeddings ? 1 : 2) * vocab_size * hidden_size;
  return tables + num_layers * (attention + mlp) + num_vector_parameters();
}

const ModelFamily* find_family(std::string_view name) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const ModelFamily& family) { return family.name == name; });
  return found == kFamilies.end() ? nullptr : &*found;
}

std::string family_names() {
  std::string text;
  for (size_t i = 0; i < kFamilies.size(); ++i) {
    if (i > 0) text += i + 1 < kFamilies.size() ? ", " : " or ";
    text += kFamilies[i].name;
  }
  return text;
}

Status validate(const ModelConfig& config, std::string_view where) {
  const std::string place(where);
  if (find_family(config.architecture) == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "architecture is \"" + config.architecture + "\", expected " + family_names(),
                place);
  }
  const std::array<NamedSize, 8> sizes = {{{"hidden_size", config.hidden_size},
                                           {"intermediate_size", config.intermediate_size},
                                           {"num_layers", config.num_layers},
                                           {"num_q_heads", config.num_q_heads},
                                           {"num_kv_heads", config.num_kv_heads},
                                           {"head_dim", config.head_dim},
                                           {"vocab_size", config.vocab_size},
                                           {"max_position", config.max_position}}};
  for (const NamedSize& size : sizes) {
    if (size.value <= 0 || size.value >= int64_t{1} << 31) {
      return fail(ErrorCode::kCorrupt,
                  str_format("%s is %lld, expected 1 to 2^31 - 1", size.name,
                             static_cast<long long>(size.value)),
                  place);
    }
  }
  if (config.num_q_heads % config.num_kv_heads != 0) {
    return fail(ErrorCode::kCorrupt,
                str_format("num_q_heads is %lld, expected a multiple of num_kv_heads, %lld",
                           static_cast<long long>(config.num_q_heads),
                           static_cast<long long>(config.num_kv_heads)),
                place);
  }
  if (config.head_dim % 2 != 0) {
    return fail(ErrorCode::kUnsupported,
                str_format("head_dim is %lld, expected an even number (rotary pairs)",
                           static_cast<long long>(config.head_dim)),
                place);
  }
  // Keeps every product of two sizes, in elements and bytes, within 64 bits.
  if (config.num_q_heads * config.head_dim >= int64_t{1} << 31) {
    return fail(ErrorCode::kCorrupt,
                str_format("num_q_heads * head_dim is %lld, expected below 2^31",
                           static_cast<long long>(config.num_q_heads * config.head_dim)),
                place);
  }
  if (!std::isfinite(config.rms_norm_eps) || config.rms_norm_eps < 0.0) {
    return fail(ErrorCode::kCorrupt,
                str_format("rms_norm_eps is %g, expected >= 0", config.rms_norm_eps), place);
  }
  TRIPTYCH_RETURN_IF_ERROR(validate_window(config, place));
  return validate_rope(config, where);
}

}  // namespace triptych
