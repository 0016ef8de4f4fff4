// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// ModelConfig: a model family as data. What differs between models is a field here, not a class.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/rope.h"

namespace triptych {

struct ModelConfig {
  std::string name;          ///< For people: "SmolLM2-135M-Instruct", "synthetic:llama-tiny".
  std::string architecture;  ///< A family: "llama", "mistral", "qwen2" or "qwen3".
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position = 0;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  RopeKind rope_kind = RopeKind::kHalfSplit;
  RopeScaling rope_scaling;
  bool qkv_bias = false;  ///< A bias on the q, k and v projections (Qwen2).
  bool qk_norm = false;   ///< An RMS norm of each head of q and k before the rotation (Qwen3).
  /// A query at position p of a windowed layer sees keys p - sliding_window + 1 to p; 0 = all.
  int64_t sliding_window = 0;
  int64_t first_window_layer = 0;  ///< Layers below it see all (max_window_layers of Qwen).
  std::vector<bool>
      window_layers{};  ///< [num_layers], decides instead of the line above; or empty.
  bool tie_word_embeddings = false;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> eos_token_id;

  /// The window of one layer in tokens; 0 = it sees all.
  [[nodiscard]] int64_t window(int64_t layer) const;
  /// Keys that a query behind `context` tokens reads, summed over the layers.
  [[nodiscard]] int64_t attended_tokens(int64_t context) const;

  /// Number of weights (embedding once if tied).
  [[nodiscard]] int64_t num_parameters() const;
  /// The part of num_parameters() that is norms and biases.
  [[nodiscard]] int64_t num_vector_parameters() const;
  /// Bytes of keys and values of one token over all layers at `bytes_per_element`.
  [[nodiscard]] int64_t kv_bytes_per_token(int64_t bytes_per_element) const {
    return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element;
  }
};

/// What sets a family apart, before a config says more.
struct ModelFamily {
  std::string_view name;      ///< "qwen2", as in `model_type` and `general.architecture`.
  std::string_view hf_class;  ///< "Qwen2ForCausalLM".
  bool qkv_bias = false;
  bool qk_norm = false;
  /// Pairing of the rotation in GGUF files, whose converter permutes q and k of some families;
  /// nothing if no GGUF file has this name.
  std::optional<RopeKind> gguf_rope{};
};
/// Null if there is no such family.
[[nodiscard]] const ModelFamily* find_family(std::string_view name);
/// "llama, mistral, qwen2 or qwen3", for messages.
[[nodiscard]] std::string family_names();

/// Checks that the fields agree (heads divide, sizes positive and below 2^31, head_dim even).
/// Errors: kCorrupt or kUnsupported, naming the field; `where` names the file.
[[nodiscard]] Status validate(const ModelConfig& config, std::string_view where);

/// Shapes of the synthetic models: "llama-tiny", "mistral-tiny", "qwen2-tiny" and "qwen3-tiny"
/// (tests), "smollm2-135m", "llama-3.1-8b", "mistral-7b" (v0.1), "qwen2.5-7b", "qwen3-8b".
/// Errors: kNotFound with the nearest name.
[[nodiscard]] Result<ModelConfig> synthetic_config(std::string_view arch);
/// Their names.
[[nodiscard]] std::vector<std::string> synthetic_architectures();

}  // namespace triptych
