// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/hf_config.h"

#include <array>

#include "base/check.h"
#include "base/strings.h"

namespace triptych {
namespace {

/// Defaults in which the config classes of the families differ; 0 = derived from other fields.
struct Defaults {
  std::string_view family;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t max_position;
  int64_t sliding_window;
};
constexpr std::array<Defaults, 4> kDefaults = {{{"llama", 0, 0, 2048, 0},
                                                {"mistral", 8, 0, 131072, 4096},
                                                {"qwen2", 32, 0, 32768, 4096},
                                                {"qwen3", 32, 128, 32768, 4096}}};
constexpr int64_t kDefaultMaxWindowLayers = 28;  // Qwen2 and Qwen3

class Reader {
 public:
  Reader(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  Result<ModelConfig> read(std::string name) {
    TRIPTYCH_TRY(const ModelFamily* family, read_family());
    for (const Defaults& defaults : kDefaults) {
      if (defaults.family == family->name) defaults_ = defaults;
    }
    TRIPTYCH_RETURN_IF_ERROR(refuse_unknown_variants());
    ModelConfig config;
    config.name = std::move(name);
    config.architecture = family->name;
    config.qkv_bias = family->qkv_bias;
    config.qk_norm = family->qk_norm;
    config.rope_kind = RopeKind::kHalfSplit;
    TRIPTYCH_RETURN_IF_ERROR(read_sizes(config));
    TRIPTYCH_RETURN_IF_ERROR(read_window(config));
    TRIPTYCH_TRY(const auto tied, json_boolean(root_, "tie_word_embeddings", where_));
    config.tie_word_embeddings = tied.value_or(false);
    TRIPTYCH_TRY(const auto eps, json_number(root_, "rms_norm_eps", where_));
    config.rms_norm_eps = eps.value_or(1e-6);  // the default of all four classes
    TRIPTYCH_RETURN_IF_ERROR(read_rope(config));
    TRIPTYCH_TRY(config.bos_token_id, read_token_id("bos_token_id"));
    TRIPTYCH_TRY(config.eos_token_id, read_token_id("eos_token_id"));
    TRIPTYCH_RETURN_IF_ERROR(validate(config, where_));
    return config;
  }

 private:
  Unexpected unsupported(std::string message) const {
    return fail(ErrorCode::kUnsupported, std::move(message), where_);
  }

  Result<const ModelFamily*> read_family() const;
  Status refuse_unknown_variants() const;
  Status read_sizes(ModelConfig& config) const;
  Status read_window(ModelConfig& config) const;
  Status read_window_size(ModelConfig& config) const;
  Status read_layer_types(ModelConfig& config) const;
  Status read_rope(ModelConfig& config) const;
  Status refuse_partial_rotation(const Json& object) const;
  Status read_rope_scaling(const Json& rope, ModelConfig& config) const;
  [[nodiscard]] bool is_qwen() const { return defaults_.family.starts_with("qwen"); }
  Result<int64_t> required(const char* key) const;
  Result<int64_t> integer_or(const char* key, int64_t absent, int64_t null) const;
  Result<double> required_number(const Json& object, const char* key) const;
  Result<std::optional<int32_t>> read_token_id(const char* key) const;

  const Json& root_;
  std::string where_;
  Defaults defaults_{};
};

Result<const ModelFamily*> Reader::read_family() const {
  TRIPTYCH_TRY(const auto type, json_string(root_, "model_type", where_));
  TRIPTYCH_TRY(const Json* names,
               json_member(root_, "architectures", Json::value_t::array, where_));
  const ModelFamily* family = find_family(type.value_or(""));
  if (family == nullptr) {
    return unsupported("\"model_type\" is \"" + type.value_or("") + "\", expected " +
                       family_names());
  }
  const std::string expected = "[\"" + std::string(family->hf_class) + "\"]";
  if (names == nullptr || names->dump() == expected) return family;
  return unsupported("\"architectures\" is " + names->dump() + " with \"model_type\" \"" + *type +
                     "\", expected " + expected);
}

Status Reader::refuse_unknown_variants() const {
  // Beyond the q, k and v biases that Qwen2 always has; in the other classes the switch adds one to
  // the output projection too.
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    TRIPTYCH_TRY(const auto bias, json_boolean(root_, key, where_));
    if (bias.value_or(false)) {
      return unsupported(std::string("\"") + key + "\" is true, expected false");
    }
  }
  TRIPTYCH_TRY(const auto activation, json_string(root_, "hidden_act", where_));
  if (activation.value_or("silu") != "silu") {
    return unsupported("\"hidden_act\" is \"" + *activation + "\", expected \"silu\"");
  }
  // Present and not null means that the weights or the arithmetic differ from these families.
  for (const char* key :
       {"quantization_config", "num_local_experts", "num_experts", "attn_logit_softcapping",
        "final_logit_softcapping", "logits_scaling", "residual_multiplier", "attention_multiplier",
        "embedding_multiplier", "attention_chunk_size", "no_rope_layers"}) {
    const auto found = root_.find(key);
    if (found == root_.end() || found->is_null()) continue;
    return unsupported(std::string("\"") + key + "\" is " + found->dump() + ", expected null");
  }
  return {};
}

Result<int64_t> Reader::required(const char* key) const {
  TRIPTYCH_TRY(const auto value, json_integer(root_, key, where_));
  if (value) return *value;
  return fail(ErrorCode::kCorrupt, std::string("\"") + key + "\" is missing", where_);
}

Result<int64_t> Reader::integer_or(const char* key, int64_t absent, int64_t null) const {
  TRIPTYCH_TRY(const auto value, json_integer(root_, key, where_));
  return value.value_or(root_.contains(key) ? null : absent);
}

Result<double> Reader::required_number(const Json& object, const char* key) const {
  TRIPTYCH_TRY(const auto value, json_number(object, key, where_));
  if (value) return *value;
  return fail(ErrorCode::kCorrupt, std::string("\"") + key + "\" is missing in the rope settings",
              where_);
}

Status Reader::read_sizes(ModelConfig& config) const {
  TRIPTYCH_TRY(config.hidden_size, required("hidden_size"));
  TRIPTYCH_TRY(config.intermediate_size, required("intermediate_size"));
  TRIPTYCH_TRY(config.num_layers, required("num_hidden_layers"));
  TRIPTYCH_TRY(config.num_q_heads, required("num_attention_heads"));
  TRIPTYCH_TRY(config.vocab_size, required("vocab_size"));
  const int64_t kv_heads = defaults_.num_kv_heads > 0 ? defaults_.num_kv_heads : config.num_q_heads;
  TRIPTYCH_TRY(config.num_kv_heads,
               integer_or("num_key_value_heads", kv_heads, config.num_q_heads));
  TRIPTYCH_TRY(config.max_position, integer_or("max_position_embeddings", defaults_.max_position,
                                               defaults_.max_position));
  if (config.num_q_heads <= 0) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"num_attention_heads\" is %lld, expected at least 1",
                           static_cast<long long>(config.num_q_heads)),
                where_);
  }
  const int64_t derived = config.hidden_size / config.num_q_heads;
  TRIPTYCH_TRY(
      config.head_dim,
      integer_or("head_dim", defaults_.head_dim > 0 ? defaults_.head_dim : derived, derived));
  return {};
}

/// The window's size. Mistral has one unless the key is null, Qwen only if a switch asks for it; in
/// Transformers the Llama classes have none.
Status Reader::read_window_size(ModelConfig& config) const {
  if (is_qwen()) {
    TRIPTYCH_TRY(const auto used, json_boolean(root_, "use_sliding_window", where_));
    if (!used.value_or(false)) return {};
  }
  TRIPTYCH_TRY(config.sliding_window, integer_or("sliding_window", defaults_.sliding_window, 0));
  const bool null = !root_.contains("sliding_window") || root_["sliding_window"].is_null();
  if (config.sliding_window > 0 || null) {
    if (defaults_.family != "llama" || config.sliding_window == 0) return {};
    return unsupported(str_format("\"sliding_window\" is %lld, expected null in a Llama model",
                                  static_cast<long long>(config.sliding_window)));
  }
  return fail(ErrorCode::kCorrupt,
              str_format("\"sliding_window\" is %lld, expected null or at least 1",
                         static_cast<long long>(config.sliding_window)),
              where_);
}

Status Reader::read_window(ModelConfig& config) const {
  TRIPTYCH_RETURN_IF_ERROR(read_window_size(config));
  if (is_qwen()) {
    TRIPTYCH_TRY(config.first_window_layer,
                 integer_or("max_window_layers", kDefaultMaxWindowLayers, kDefaultMaxWindowLayers));
  }
  return read_layer_types(config);
}

/// `layer_types` decides layer by layer in the Qwen classes; the others ignore it, so there it must
/// say what they do.
Status Reader::read_layer_types(ModelConfig& config) const {
  TRIPTYCH_TRY(const Json* types, json_member(root_, "layer_types", Json::value_t::array, where_));
  if (types == nullptr) return {};
  std::vector<bool> windowed;
  for (const Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return unsupported("\"layer_types\" has " + type.dump() +
                         ", expected \"full_attention\" or \"sliding_attention\"");
    }
    windowed.push_back(type == "sliding_attention");
    if (!is_qwen() && windowed.back() != (config.sliding_window > 0)) {
      return unsupported("\"layer_types\" has " + type.dump() + ", but every layer of a " +
                         config.architecture + " model has " +
                         (config.sliding_window > 0 ? "the window" : "full attention"));
    }
  }
  if (static_cast<int64_t>(windowed.size()) != config.num_layers) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"layer_types\" has %zu entries, expected one a layer, %lld",
                           windowed.size(), static_cast<long long>(config.num_layers)),
                where_);
  }
  if (is_qwen()) config.window_layers = std::move(windowed);
  return {};
}

Status Reader::refuse_partial_rotation(const Json& object) const {
  TRIPTYCH_TRY(const auto part, json_number(object, "partial_rotary_factor", where_));
  if (part.value_or(1.0) == 1.0) return {};
  return unsupported(str_format("\"partial_rotary_factor\" is %g, expected 1", *part));
}

Status Reader::read_rope(ModelConfig& config) const {
  TRIPTYCH_RETURN_IF_ERROR(refuse_partial_rotation(root_));
  TRIPTYCH_TRY(const Json* rope,
               json_member(root_, "rope_parameters", Json::value_t::object, where_));
  TRIPTYCH_TRY(const Json* scaling,
               json_member(root_, "rope_scaling", Json::value_t::object, where_));
  if (rope == nullptr) rope = scaling;
  TRIPTYCH_TRY(const auto theta, json_number(root_, "rope_theta", where_));
  config.rope_theta = theta.value_or(10000.0);  // the default of all four classes
  if (rope == nullptr) return {};
  for (const auto& [key, value] : rope->items()) {
    // Transformers 5 keeps one set of settings per layer type where layers differ.
    if (value.is_object()) return unsupported("rope settings of their own for \"" + key + "\"");
  }
  TRIPTYCH_RETURN_IF_ERROR(refuse_partial_rotation(*rope));
  TRIPTYCH_TRY(const auto nested_theta, json_number(*rope, "rope_theta", where_));
  config.rope_theta = nested_theta.value_or(config.rope_theta);
  return read_rope_scaling(*rope, config);
}

Status Reader::read_rope_scaling(const Json& rope, ModelConfig& config) const {
  TRIPTYCH_TRY(const auto rope_type, json_string(rope, "rope_type", where_));
  TRIPTYCH_TRY(const auto old_type, json_string(rope, "type", where_));
  const std::string type = rope_type.value_or(old_type.value_or("default"));
  RopeScaling& scaling = config.rope_scaling;
  if (type == "default") return {};
  if (type != "linear" && type != "llama3") {
    return unsupported("\"rope_type\" is \"" + type + "\", expected default, linear or llama3");
  }
  TRIPTYCH_TRY(scaling.factor, required_number(rope, "factor"));
  scaling.kind = RopeScalingKind::kLinear;
  if (type == "linear") return {};
  scaling.kind = RopeScalingKind::kLlama3;
  TRIPTYCH_TRY(scaling.low_freq_factor, required_number(rope, "low_freq_factor"));
  TRIPTYCH_TRY(scaling.high_freq_factor, required_number(rope, "high_freq_factor"));
  TRIPTYCH_TRY(scaling.original_max_position,
               required_number(rope, "original_max_position_embeddings"));
  return {};
}

/// One id, or the first of a list.
Result<std::optional<int32_t>> Reader::read_token_id(const char* key) const {
  const auto found = root_.find(key);
  if (found == root_.end() || found->is_null()) return std::optional<int32_t>{};
  const Json& id = found->is_array() && !found->empty() ? found->front() : *found;
  const bool fits = id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX;
  if (fits) return std::optional<int32_t>(id.get<int32_t>());
  return fail(ErrorCode::kCorrupt,
              std::string("\"") + key + "\" is " + id.dump() + ", expected a token id", where_);
}

Json rope_scaling_json(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      return nullptr;
    case RopeScalingKind::kLinear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScalingKind::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings",
               static_cast<int64_t>(scaling.original_max_position)}};
  }
  TRIPTYCH_CHECK(false, "unknown RopeScalingKind");
}

Json token_id_json(const std::optional<int32_t>& id) { return id ? Json(*id) : Json(nullptr); }

Json layer_types_json(const ModelConfig& config) {
  if (config.window_layers.empty()) return nullptr;
  Json types = Json::array();
  for (const bool windowed : config.window_layers) {
    types.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  return types;
}

}  // namespace

Json hf_config_json(const ModelConfig& config, std::string_view torch_dtype) {
  TRIPTYCH_CHECK(config.rope_kind == RopeKind::kHalfSplit, "Hugging Face models rotate halves");
  const ModelFamily* family = find_family(config.architecture);
  TRIPTYCH_CHECK(family != nullptr, "a validated config has a family");
  Json json = {{"architectures", {family->hf_class}},
               {"model_type", family->name},
               {"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"num_hidden_layers", config.num_layers},
               {"num_attention_heads", config.num_q_heads},
               {"num_key_value_heads", config.num_kv_heads},
               {"head_dim", config.head_dim},
               {"vocab_size", config.vocab_size},
               {"max_position_embeddings", config.max_position},
               {"rms_norm_eps", config.rms_norm_eps},
               {"rope_theta", config.rope_theta},
               {"rope_scaling", rope_scaling_json(config.rope_scaling)},
               {"hidden_act", "silu"},
               {"tie_word_embeddings", config.tie_word_embeddings},
               {"bos_token_id", token_id_json(config.bos_token_id)},
               {"eos_token_id", token_id_json(config.eos_token_id)},
               {"torch_dtype", torch_dtype}};
  const Json window = config.sliding_window > 0 ? Json(config.sliding_window) : Json(nullptr);
  if (family->name == "mistral") json["sliding_window"] = window;
  if (family->name.starts_with("qwen")) {
    json["sliding_window"] = window;
    json["use_sliding_window"] = config.sliding_window > 0;
    json["max_window_layers"] = config.first_window_layer;
    if (const Json types = layer_types_json(config); !types.is_null()) json["layer_types"] = types;
  }
  return json;
}

Result<ModelConfig> parse_hf_config(std::string_view text, std::string name,
                                    const std::string& where) {
  TRIPTYCH_TRY(const Json root, parse_json_object(text, where));
  return Reader(root, where).read(std::move(name));
}

}  // namespace triptych
