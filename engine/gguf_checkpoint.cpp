// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// open_gguf: a model out of one GGUF file.
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "engine/checkpoint.h"
#include "engine/file_checkpoint.h"
#include "engine/gguf.h"
#include "engine/gguf_tokenizer.h"

namespace triptych {
namespace {

constexpr std::string_view kRopeFactors = "rope_freqs.weight";

/// Name in the file of a tensor that carries our name: "layers.3.q" -> "blk.3.attn_q.weight".
std::string gguf_name(std::string_view name) {
  static const std::unordered_map<std::string_view, std::string_view> kNames = {
      {"embed", "token_embd.weight"},   {"final_norm", "output_norm.weight"},
      {"lm_head", "output.weight"},     {"attn_norm", "attn_norm.weight"},
      {"q", "attn_q.weight"},           {"k", "attn_k.weight"},
      {"v", "attn_v.weight"},           {"q_bias", "attn_q.bias"},
      {"k_bias", "attn_k.bias"},        {"v_bias", "attn_v.bias"},
      {"q_norm", "attn_q_norm.weight"}, {"k_norm", "attn_k_norm.weight"},
      {"o", "attn_output.weight"},      {"ffn_norm", "ffn_norm.weight"},
      {"gate", "ffn_gate.weight"},      {"up", "ffn_up.weight"},
      {"down", "ffn_down.weight"}};
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return std::string(kNames.at(name));
  const size_t dot = name.find('.', kLayers.size());
  const auto layer = name.substr(kLayers.size(), dot - kLayers.size());
  return "blk." + std::string(layer) + "." + std::string(kNames.at(name.substr(dot + 1)));
}

Unexpected unsupported(const Gguf& file, std::string message) {
  return fail(ErrorCode::kUnsupported, std::move(message), file.where());
}

/// The keys of a file's architecture: "context_length" stands for "llama.context_length".
class Keys {
 public:
  Keys(const Gguf& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  [[nodiscard]] const Gguf& file() const { return file_; }
  [[nodiscard]] std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  [[nodiscard]] Result<int64_t> required_integer(std::string_view key) const {
    TRIPTYCH_TRY(const auto value, file_.integer(full(key)));
    if (value) return *value;
    return fail(ErrorCode::kCorrupt, "key \"" + full(key) + "\" is missing", file_.where());
  }
  [[nodiscard]] Result<int64_t> integer_or(std::string_view key, int64_t otherwise) const {
    TRIPTYCH_TRY(const auto value, file_.integer(full(key)));
    return value.value_or(otherwise);
  }
  [[nodiscard]] Result<double> number_or(std::string_view key, double otherwise) const {
    TRIPTYCH_TRY(const auto value, file_.number(full(key)));
    return value.value_or(otherwise);
  }

 private:
  const Gguf& file_;
  std::string prefix_;
};

/// Keys that would change the results and that this engine does not implement.
Status refuse_unknown_variants(const Keys& keys) {
  struct Variant {
    std::string key;
    int64_t least;
    int64_t most;
  };
  const Variant variants[] = {{keys.full("expert_count"), 0, 0},
                              {keys.full("attention.causal"), 1, 1},
                              {keys.full("use_parallel_residual"), 0, 0},
                              {"split.count", 0, 1}};
  const Gguf& file = keys.file();
  for (const Variant& variant : variants) {
    const GgufValue* value = file.find(variant.key);
    if (value == nullptr) continue;
    int64_t found = 0;
    if (value->type == GgufType::kBool) {
      TRIPTYCH_TRY(const auto flag, file.boolean(variant.key));
      found = *flag ? 1 : 0;
    } else {
      TRIPTYCH_TRY(const auto number, file.integer(variant.key));
      found = *number;
    }
    if (found >= variant.least && found <= variant.most) continue;
    return unsupported(
        file, str_format("\"%s\" is %lld, expected %lld", variant.key.c_str(),
                         static_cast<long long>(found), static_cast<long long>(variant.most)));
  }
  for (const char* key :
       {"attention.sliding_window_pattern", "attn_logit_softcapping", "final_logit_softcapping",
        "logit_scale", "residual_scale", "embedding_scale", "attention.scale"}) {
    if (file.find(keys.full(key)) == nullptr) continue;
    return unsupported(file, "\"" + keys.full(key) + "\" is set, expected none");
  }
  return {};
}

Result<RopeScaling> read_rope_scaling(const Keys& keys) {
  RopeScaling scaling;
  const std::string key = keys.full("rope.scaling.type");
  TRIPTYCH_TRY(const auto type, keys.file().string(key));
  if (!type || *type == "none") return scaling;
  if (*type != "linear") {
    return unsupported(
        keys.file(), "\"" + key + "\" is \"" + std::string(*type) + "\", expected none or linear");
  }
  scaling.kind = RopeScalingKind::kLinear;
  TRIPTYCH_TRY(scaling.factor, keys.number_or("rope.scaling.factor", 1.0));
  return scaling;
}

/// Files of Llama 3.1 and later store the factor by which each frequency is divided instead of the
/// four parameters behind them. Three of the four are the same in all published models; the fourth
/// is the largest factor. The guess is used only if it gives back every stored factor.
Status read_rope_factors(const Gguf& file, const GgufTensor& tensor, ModelConfig& config) {
  const auto count = static_cast<size_t>(config.head_dim / 2);
  if (tensor.dtype != DType::kF32 || tensor.data.size() != count * sizeof(float)) {
    return fail(ErrorCode::kCorrupt,
                str_format("tensor \"%s\" has %zu bytes of type %s, expected %zu of type f32",
                           kRopeFactors.data(), tensor.data.size(),
                           dtype_info(tensor.dtype).name.data(), count * sizeof(float)),
                file.where());
  }
  std::vector<float> factors(count);
  std::memcpy(factors.data(), tensor.data.data(), tensor.data.size());
  RopeScaling guess{.kind = RopeScalingKind::kLlama3};
  guess.factor = factors.back();
  const auto plain = rope_inverse_frequencies(config.rope_theta, config.head_dim, {});
  const auto scaled = rope_inverse_frequencies(config.rope_theta, config.head_dim, guess);
  for (size_t i = 0; i < count; ++i) {
    // Two float divisions apart from the writer's arithmetic; 1e-4 also covers a float32 theta.
    const double implied = static_cast<double>(plain[i]) / static_cast<double>(scaled[i]);
    const auto stored = static_cast<double>(factors[i]);
    if (!(std::abs(implied - stored) <= 1e-4 * implied)) {
      return unsupported(file, str_format("tensor \"%s\": factor %zu is %g, Llama 3 scaling by %g "
                                          "gives %g",
                                          kRopeFactors.data(), i, stored, guess.factor, implied));
    }
  }
  if (config.rope_scaling.kind != RopeScalingKind::kNone) {
    return unsupported(file, "both \"" + config.architecture +
                                 ".rope.scaling.type\" and a tensor \"" +
                                 std::string(kRopeFactors) + "\" scale the rotation");
  }
  // A factor of 1 everywhere is no scaling.
  if (guess.factor != 1.0) config.rope_scaling = guess;
  return {};
}

Result<const ModelFamily*> read_family(const Gguf& file) {
  TRIPTYCH_TRY(const auto name, file.string("general.architecture"));
  const ModelFamily* family = name ? find_family(*name) : nullptr;
  if (family != nullptr && family->gguf_rope) return family;
  return unsupported(file, "\"general.architecture\" is " +
                               (name ? "\"" + std::string(*name) + "\"" : std::string("missing")) +
                               ", expected llama, qwen2 or qwen3");
}

Status read_sizes(const Keys& keys, ModelConfig& config) {
  TRIPTYCH_TRY(config.hidden_size, keys.required_integer("embedding_length"));
  TRIPTYCH_TRY(config.intermediate_size, keys.required_integer("feed_forward_length"));
  TRIPTYCH_TRY(config.num_layers, keys.required_integer("block_count"));
  TRIPTYCH_TRY(config.num_q_heads, keys.required_integer("attention.head_count"));
  TRIPTYCH_TRY(config.num_kv_heads, keys.integer_or("attention.head_count_kv", config.num_q_heads));
  TRIPTYCH_TRY(config.max_position, keys.required_integer("context_length"));
  if (config.num_q_heads <= 0) {
    return fail(
        ErrorCode::kCorrupt,
        str_format("\"%s\" is %lld, expected at least 1", keys.full("attention.head_count").c_str(),
                   static_cast<long long>(config.num_q_heads)),
        keys.file().where());
  }
  TRIPTYCH_TRY(config.head_dim,
               keys.integer_or("attention.key_length", config.hidden_size / config.num_q_heads));
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    TRIPTYCH_TRY(const auto length, keys.integer_or(key, config.head_dim));
    if (length == config.head_dim) continue;
    return unsupported(
        keys.file(),
        str_format("\"%s\" is %lld, expected the head dimension, %lld", keys.full(key).c_str(),
                   static_cast<long long>(length), static_cast<long long>(config.head_dim)));
  }
  return {};
}

Result<ModelConfig> read_config(const Gguf& file, std::string name) {
  TRIPTYCH_TRY(const ModelFamily* family, read_family(file));
  const Keys keys(file, family->name);
  TRIPTYCH_RETURN_IF_ERROR(refuse_unknown_variants(keys));

  ModelConfig config;
  config.name = std::move(name);
  config.architecture = family->name;
  config.qkv_bias = family->qkv_bias;
  config.qk_norm = family->qk_norm;
  config.rope_kind = *family->gguf_rope;
  TRIPTYCH_RETURN_IF_ERROR(read_sizes(keys, config));
  TRIPTYCH_TRY(config.sliding_window, keys.integer_or("attention.sliding_window", 0));
  TRIPTYCH_TRY(config.rms_norm_eps, keys.number_or("attention.layer_norm_rms_epsilon", 1e-5));
  TRIPTYCH_TRY(config.rope_theta, keys.number_or("rope.freq_base", 10000.0));
  TRIPTYCH_TRY(config.rope_scaling, read_rope_scaling(keys));
  for (const auto& [key, id] : {std::pair{"tokenizer.ggml.bos_token_id", &config.bos_token_id},
                                std::pair{"tokenizer.ggml.eos_token_id", &config.eos_token_id}}) {
    TRIPTYCH_TRY(const auto value, file.integer(key));
    if (!value) continue;
    if (*value < 0 || *value > INT32_MAX) {
      return fail(
          ErrorCode::kCorrupt,
          str_format("\"%s\" is %lld, expected a token id", key, static_cast<long long>(*value)),
          file.where());
    }
    *id = static_cast<int32_t>(*value);
  }
  return config;
}

using TensorIndex = std::unordered_map<std::string_view, const GgufTensor*>;

/// What only the tensor list knows: vocabulary, tied embeddings, Llama 3 scaling.
Status complete_config(const Gguf& file, const TensorIndex& index, ModelConfig& config) {
  const auto embed = index.find("token_embd.weight");
  if (embed == index.end()) {
    return fail(ErrorCode::kCorrupt, "tensor \"token_embd.weight\" is missing", file.where());
  }
  config.vocab_size = embed->second->dims[0];
  config.tie_word_embeddings = !index.contains("output.weight");
  const Keys keys(file, config.architecture);
  TRIPTYCH_TRY(const auto declared, keys.integer_or("vocab_size", config.vocab_size));
  if (declared != config.vocab_size) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"%s\" is %lld, tensor \"token_embd.weight\" has %lld rows",
                           keys.full("vocab_size").c_str(), static_cast<long long>(declared),
                           static_cast<long long>(config.vocab_size)),
                file.where());
  }
  TRIPTYCH_RETURN_IF_ERROR(validate(config, file.where()));
  const auto factors = index.find(kRopeFactors);
  if (factors == index.end()) return {};
  return read_rope_factors(file, *factors->second, config);
}

Status add_tensors(const Gguf& file, TensorIndex index, FileCheckpoint& checkpoint) {
  index.erase(kRopeFactors);
  TRIPTYCH_RETURN_IF_ERROR(
      for_each_tensor(checkpoint.config(), [&](const TensorSpec& spec) -> Status {
        const std::string name = gguf_name(spec.name);
        const auto found = index.find(name);
        if (found == index.end()) {
          return fail(ErrorCode::kCorrupt, "tensor \"" + name + "\" is missing", file.where());
        }
        const GgufTensor& tensor = *found->second;
        index.erase(found);
        return checkpoint.add(spec, {.name = tensor.name,
                                     .where = file.where(),
                                     .shape = tensor.shape(),
                                     .dtype = tensor.dtype,
                                     .data = tensor.data.data()});
      }));
  if (index.empty()) return {};
  // A bias or an extra norm changes the results; running without it would be a silent error.
  return unsupported(file, "tensor \"" + std::string(index.begin()->first) +
                               "\" has no place in a " + checkpoint.config().architecture +
                               " model");
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> open_gguf(const std::filesystem::path& path) {
  std::vector<MappedFile> files;
  TRIPTYCH_TRY(auto mapped, MappedFile::open(path));
  files.push_back(std::move(mapped));
  TRIPTYCH_TRY(const Gguf file, Gguf::parse(files[0].bytes(), path.string()));

  TensorIndex index;
  for (const GgufTensor& tensor : file.tensors()) index.emplace(tensor.name, &tensor);
  TRIPTYCH_TRY(ModelConfig config, read_config(file, path.stem().string()));
  TRIPTYCH_RETURN_IF_ERROR(complete_config(file, index, config));
  TRIPTYCH_TRY(auto tokenizer, load_gguf_tokenizer(file, config.vocab_size));
  auto checkpoint =
      std::make_shared<FileCheckpoint>(std::move(config), "gguf:" + path.filename().string(),
                                       std::move(files), std::move(tokenizer));
  TRIPTYCH_RETURN_IF_ERROR(add_tensors(file, std::move(index), *checkpoint));
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

}  // namespace triptych
