// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// open_gguf: a Llama model out of one GGUF file.
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
      {"embed", "token_embd"},  {"final_norm", "output_norm"},
      {"lm_head", "output"},    {"attn_norm", "attn_norm"},
      {"q", "attn_q"},          {"k", "attn_k"},
      {"v", "attn_v"},          {"o", "attn_output"},
      {"ffn_norm", "ffn_norm"}, {"gate", "ffn_gate"},
      {"up", "ffn_up"},         {"down", "ffn_down"}};
  constexpr std::string_view kLayers = "layers.";
  if (name.substr(0, kLayers.size()) != kLayers) {
    return std::string(kNames.at(name)) + ".weight";
  }
  const size_t dot = name.find('.', kLayers.size());
  const auto layer = name.substr(kLayers.size(), dot - kLayers.size());
  return "blk." + std::string(layer) + "." + std::string(kNames.at(name.substr(dot + 1))) +
         ".weight";
}

Unexpected unsupported(const Gguf& file, std::string message) {
  return fail(ErrorCode::kUnsupported, std::move(message), file.where());
}

Result<int64_t> required_integer(const Gguf& file, const char* key) {
  TRIPTYCH_TRY(const auto value, file.integer(key));
  if (value) return *value;
  return fail(ErrorCode::kCorrupt, std::string("key \"") + key + "\" is missing", file.where());
}

Result<int64_t> integer_or(const Gguf& file, const char* key, int64_t otherwise) {
  TRIPTYCH_TRY(const auto value, file.integer(key));
  return value.value_or(otherwise);
}

Result<double> number_or(const Gguf& file, const char* key, double otherwise) {
  TRIPTYCH_TRY(const auto value, file.number(key));
  return value.value_or(otherwise);
}

/// Keys that would change the results and that this engine does not implement.
Status refuse_unknown_variants(const Gguf& file) {
  struct Variant {
    const char* key;
    int64_t least;
    int64_t most;
  };
  constexpr Variant kVariants[] = {{"llama.expert_count", 0, 0},
                                   {"llama.attention.sliding_window", 0, 0},
                                   {"llama.attention.causal", 1, 1},
                                   {"llama.use_parallel_residual", 0, 0},
                                   {"split.count", 0, 1}};
  for (const Variant& variant : kVariants) {
    const GgufValue* value = file.find(variant.key);
    if (value == nullptr) continue;
    int64_t found = 0;
    if (value->type == GgufType::kBool) {
      TRIPTYCH_TRY(const auto flag, file.boolean(variant.key));
      found = *flag ? 1 : 0;
    } else {
      TRIPTYCH_TRY(found, required_integer(file, variant.key));
    }
    if (found >= variant.least && found <= variant.most) continue;
    return unsupported(
        file, str_format("\"%s\" is %lld, expected %lld", variant.key,
                         static_cast<long long>(found), static_cast<long long>(variant.most)));
  }
  return {};
}

Result<RopeScaling> read_rope_scaling(const Gguf& file) {
  RopeScaling scaling;
  TRIPTYCH_TRY(const auto type, file.string("llama.rope.scaling.type"));
  if (!type || *type == "none") return scaling;
  if (*type != "linear") {
    return unsupported(file, "\"llama.rope.scaling.type\" is \"" + std::string(*type) +
                                 "\", expected none or linear");
  }
  scaling.kind = RopeScalingKind::kLinear;
  TRIPTYCH_TRY(scaling.factor, number_or(file, "llama.rope.scaling.factor", 1.0));
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
    return unsupported(file, "both \"llama.rope.scaling.type\" and a tensor \"" +
                                 std::string(kRopeFactors) + "\" scale the rotation");
  }
  // A factor of 1 everywhere is no scaling.
  if (guess.factor != 1.0) config.rope_scaling = guess;
  return {};
}

Result<ModelConfig> read_config(const Gguf& file, std::string name) {
  TRIPTYCH_TRY(const auto architecture, file.string("general.architecture"));
  if (!architecture || *architecture != "llama") {
    return unsupported(file, "\"general.architecture\" is " +
                                 (architecture ? "\"" + std::string(*architecture) + "\""
                                               : std::string("missing")) +
                                 ", expected \"llama\"");
  }
  TRIPTYCH_RETURN_IF_ERROR(refuse_unknown_variants(file));

  ModelConfig config;
  config.name = std::move(name);
  config.architecture = *architecture;
  config.rope_kind = RopeKind::kInterleaved;
  TRIPTYCH_TRY(config.hidden_size, required_integer(file, "llama.embedding_length"));
  TRIPTYCH_TRY(config.intermediate_size, required_integer(file, "llama.feed_forward_length"));
  TRIPTYCH_TRY(config.num_layers, required_integer(file, "llama.block_count"));
  TRIPTYCH_TRY(config.num_q_heads, required_integer(file, "llama.attention.head_count"));
  TRIPTYCH_TRY(config.num_kv_heads,
               integer_or(file, "llama.attention.head_count_kv", config.num_q_heads));
  TRIPTYCH_TRY(config.max_position, required_integer(file, "llama.context_length"));
  if (config.num_q_heads <= 0) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"llama.attention.head_count\" is %lld, expected at least 1",
                           static_cast<long long>(config.num_q_heads)),
                file.where());
  }
  TRIPTYCH_TRY(config.head_dim, integer_or(file, "llama.attention.key_length",
                                           config.hidden_size / config.num_q_heads));
  for (const char* key : {"llama.attention.value_length", "llama.rope.dimension_count"}) {
    TRIPTYCH_TRY(const auto length, integer_or(file, key, config.head_dim));
    if (length == config.head_dim) continue;
    return unsupported(
        file, str_format("\"%s\" is %lld, expected the head dimension, %lld", key,
                         static_cast<long long>(length), static_cast<long long>(config.head_dim)));
  }
  TRIPTYCH_TRY(config.rms_norm_eps,
               number_or(file, "llama.attention.layer_norm_rms_epsilon", 1e-5));
  TRIPTYCH_TRY(config.rope_theta, number_or(file, "llama.rope.freq_base", 10000.0));
  TRIPTYCH_TRY(config.rope_scaling, read_rope_scaling(file));
  for (const auto& [key, id] : {std::pair{"tokenizer.ggml.bos_token_id", &config.bos_token_id},
                                std::pair{"tokenizer.ggml.eos_token_id", &config.eos_token_id}}) {
    TRIPTYCH_TRY(const auto value, file.integer(key));
    if (value) *id = static_cast<int32_t>(*value);
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
  TRIPTYCH_TRY(const auto declared, integer_or(file, "llama.vocab_size", config.vocab_size));
  if (declared != config.vocab_size) {
    return fail(
        ErrorCode::kCorrupt,
        str_format("\"llama.vocab_size\" is %lld, tensor \"token_embd.weight\" has %lld "
                   "rows",
                   static_cast<long long>(declared), static_cast<long long>(config.vocab_size)),
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
  return unsupported(
      file, "tensor \"" + std::string(index.begin()->first) + "\" has no place in a Llama model");
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
