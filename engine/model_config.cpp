// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_config.h"

#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "base/strings.h"

namespace triptych {
namespace {

struct NamedSize {
  const char* name;
  int64_t value;
};

ModelConfig llama_tiny() {
  ModelConfig config;
  config.hidden_size = 64;
  config.intermediate_size = 192;
  config.num_layers = 2;
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.vocab_size = 512;
  config.max_position = 2048;
  return config;
}

ModelConfig smollm2_135m() {
  ModelConfig config;
  config.hidden_size = 576;
  config.intermediate_size = 1536;
  config.num_layers = 30;
  config.num_q_heads = 9;
  config.num_kv_heads = 3;
  config.head_dim = 64;
  config.vocab_size = 49152;
  config.max_position = 8192;
  config.rope_theta = 1e5;
  config.tie_word_embeddings = true;
  return config;
}

ModelConfig llama_3_1_8b() {
  ModelConfig config;
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_layers = 32;
  config.num_q_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 128256;
  config.max_position = 131072;
  config.rope_theta = 5e5;
  config.rope_scaling = {.kind = RopeScalingKind::kLlama3,
                         .factor = 8.0,
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_position = 8192.0};
  return config;
}

struct SyntheticArch {
  const char* name;
  ModelConfig (*make)();
};
constexpr std::array<SyntheticArch, 3> kSyntheticArchs = {{
    {"llama-tiny", llama_tiny},
    {"smollm2-135m", smollm2_135m},
    {"llama-3.1-8b", llama_3_1_8b},
}};

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
  if (!positive(scaling.original_max_position)) {
    return bad("original_max_position_embeddings", scaling.original_max_position, "> 0");
  }
  return {};
}

}  // namespace

int64_t ModelConfig::num_parameters() const {
  const int64_t q = num_q_heads * head_dim;
  const int64_t kv = num_kv_heads * head_dim;
  const int64_t attention = hidden_size * (2 * q + 2 * kv);
  const int64_t mlp = 3 * hidden_size * intermediate_size;
  const int64_t norms = 2 * hidden_size;
  const int64_t tables = (tie_word_embeddings ? 1 : 2) * vocab_size * hidden_size;
  return tables + num_layers * (attention + mlp + norms) + hidden_size;
}

Status validate(const ModelConfig& config, std::string_view where) {
  const std::string place(where);
  if (config.architecture != "llama") {
    return fail(ErrorCode::kUnsupported,
                "architecture is \"" + config.architecture + "\", expected \"llama\"", place);
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
  return validate_rope(config, where);
}

Result<ModelConfig> synthetic_config(std::string_view arch) {
  std::vector<std::string> names;
  for (const SyntheticArch& known : kSyntheticArchs) {
    if (arch == known.name) {
      ModelConfig config = known.make();
      config.architecture = "llama";
      config.name = "synthetic:" + std::string(arch);
      return config;
    }
    names.emplace_back(known.name);
  }
  const std::string near = nearest(arch, names);
  return fail(ErrorCode::kNotFound, "no synthetic architecture \"" + std::string(arch) + "\"" +
                                        (near.empty() ? "" : ", did you mean \"" + near + "\"?") +
                                        " (known: " + join(names, ", ") + ")");
}

}  // namespace triptych
