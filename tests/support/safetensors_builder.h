// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// SafetensorsBuilder: the bytes of a small safetensors file, and a whole Hugging Face directory.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gguf_builder.h"
#include "tests/support/temp_dir.h"

namespace triptych {

class SafetensorsBuilder {
 public:
  void add(const std::string& name, const std::string& type, std::vector<int64_t> shape,
           const std::string& bytes) {
    const int64_t begin = static_cast<int64_t>(data_.size());
    data_ += bytes;
    header[name] = {{"dtype", type},
                    {"shape", std::move(shape)},
                    {"data_offsets", {begin, static_cast<int64_t>(data_.size())}}};
  }
  [[nodiscard]] std::string build() const { return with_header(header.dump()); }
  /// The data under any header, right or wrong, padded to a multiple of 8.
  [[nodiscard]] std::string with_header(std::string text) const {
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return raw(static_cast<uint64_t>(text.size())) + text + data_;
  }

  nlohmann::json header = nlohmann::json::object();

 private:
  std::string data_;
};

/// config.json of a model with two layers of hidden size 32.
[[nodiscard]] inline nlohmann::json tiny_hf_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 32},
          {"intermediate_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 40},
          {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false},
          {"bos_token_id", 1},
          {"eos_token_id", {2, 3}}};
}

/// Names and shapes of the tensors of tiny_hf_config(), in the order of a written file.
[[nodiscard]] inline std::vector<std::pair<std::string, std::vector<int64_t>>> tiny_hf_tensors() {
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"model.embed_tokens.weight", {40, 32}},
      {"model.norm.weight", {32}},
      {"lm_head.weight", {40, 32}}};
  for (const std::string& layer :
       {std::string("model.layers.0."), std::string("model.layers.1.")}) {
    tensors.push_back({layer + "input_layernorm.weight", {32}});
    tensors.push_back({layer + "self_attn.q_proj.weight", {32, 32}});
    tensors.push_back({layer + "self_attn.k_proj.weight", {16, 32}});
    tensors.push_back({layer + "self_attn.v_proj.weight", {16, 32}});
    tensors.push_back({layer + "self_attn.o_proj.weight", {32, 32}});
    tensors.push_back({layer + "post_attention_layernorm.weight", {32}});
    tensors.push_back({layer + "mlp.gate_proj.weight", {64, 32}});
    tensors.push_back({layer + "mlp.up_proj.weight", {64, 32}});
    tensors.push_back({layer + "mlp.down_proj.weight", {32, 64}});
  }
  return tensors;
}

/// The tensors of tiny_hf_tensors() as f32, numbered from `seed`.
[[nodiscard]] inline SafetensorsBuilder tiny_hf_weights(uint64_t seed = 0) {
  SafetensorsBuilder builder;
  for (const auto& [name, shape] : tiny_hf_tensors()) {
    builder.add(name, "F32", shape,
                random_floats(shape[0] * (shape.size() > 1 ? shape[1] : 1), seed++));
  }
  return builder;
}

}  // namespace triptych
