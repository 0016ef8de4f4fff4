// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/hf_config.h"

#include "base/strings.h"
#include "engine/json.h"

namespace triptych {
namespace {

class Reader {
 public:
  Reader(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  Result<ModelConfig> read(std::string name) {
    TRIPTYCH_RETURN_IF_ERROR(check_architecture());
    TRIPTYCH_RETURN_IF_ERROR(refuse_unknown_variants());
    ModelConfig config;
    config.name = std::move(name);
    config.architecture = "llama";
    config.rope_kind = RopeKind::kHalfSplit;
    TRIPTYCH_RETURN_IF_ERROR(read_sizes(config));
    TRIPTYCH_TRY(const auto tied, json_boolean(root_, "tie_word_embeddings", where_));
    config.tie_word_embeddings = tied.value_or(false);
    TRIPTYCH_TRY(const auto eps, json_number(root_, "rms_norm_eps", where_));
    config.rms_norm_eps = eps.value_or(1e-6);  // the default of LlamaConfig
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

  Status check_architecture() const;
  Status refuse_unknown_variants() const;
  Status read_sizes(ModelConfig& config) const;
  Status read_rope(ModelConfig& config) const;
  Status refuse_partial_rotation(const Json& object) const;
  Status read_rope_scaling(const Json& rope, ModelConfig& config) const;
  Result<int64_t> required(const char* key) const;
  Result<double> required_number(const Json& object, const char* key) const;
  Result<std::optional<int32_t>> read_token_id(const char* key) const;

  const Json& root_;
  std::string where_;
};

Status Reader::check_architecture() const {
  TRIPTYCH_TRY(const auto type, json_string(root_, "model_type", where_));
  TRIPTYCH_TRY(const Json* names,
               json_member(root_, "architectures", Json::value_t::array, where_));
  const std::string found = names != nullptr ? names->dump() : "null";
  if (type.value_or("") == "llama" && (names == nullptr || found == R"(["LlamaForCausalLM"])")) {
    return {};
  }
  return unsupported("\"model_type\" is \"" + type.value_or("") + "\" with \"architectures\" " +
                     found + ", expected \"llama\" with [\"LlamaForCausalLM\"]");
}

Status Reader::refuse_unknown_variants() const {
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
  // Present and not null means that the weights or the attention differ from plain Llama.
  for (const char* key : {"quantization_config", "sliding_window", "num_local_experts",
                          "layer_types", "attn_logit_softcapping", "final_logit_softcapping"}) {
    const auto found = root_.find(key);
    if (found == root_.end() || found->is_null()) continue;
    return unsupported(std::string("\"") + key + "\" is set, expected null");
  }
  return {};
}

Result<int64_t> Reader::required(const char* key) const {
  TRIPTYCH_TRY(const auto value, json_integer(root_, key, where_));
  if (value) return *value;
  return fail(ErrorCode::kCorrupt, std::string("\"") + key + "\" is missing", where_);
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
  TRIPTYCH_TRY(const auto kv_heads, json_integer(root_, "num_key_value_heads", where_));
  config.num_kv_heads = kv_heads.value_or(config.num_q_heads);
  TRIPTYCH_TRY(const auto max_position, json_integer(root_, "max_position_embeddings", where_));
  config.max_position = max_position.value_or(2048);  // the default of LlamaConfig
  if (config.num_q_heads <= 0) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"num_attention_heads\" is %lld, expected at least 1",
                           static_cast<long long>(config.num_q_heads)),
                where_);
  }
  TRIPTYCH_TRY(const auto head_dim, json_integer(root_, "head_dim", where_));
  config.head_dim = head_dim.value_or(config.hidden_size / config.num_q_heads);
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
  config.rope_theta = theta.value_or(10000.0);  // the default of LlamaConfig
  if (rope == nullptr) return {};
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
    return unsupported("rope type \"" + type + "\", expected default, linear or llama3");
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

}  // namespace

Result<ModelConfig> parse_hf_config(std::string_view text, std::string name,
                                    const std::string& where) {
  TRIPTYCH_TRY(const Json root, parse_json_object(text, where));
  return Reader(root, where).read(std::move(name));
}

}  // namespace triptych
