// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// ModelConfig: a model family as data. What differs between models is a field here, not a class.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/rope.h"

namespace triptych {

struct ModelConfig {
  std::string name;          ///< For people: "SmolLM2-135M-Instruct", "synthetic:llama-tiny".
  std::string architecture;  ///< "llama".
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
  bool tie_word_embeddings = false;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> eos_token_id;

  /// Number of weights (embedding once if tied).
  [[nodiscard]] int64_t num_parameters() const;
  /// Bytes of keys and values of one token over all layers at `bytes_per_element`.
  [[nodiscard]] int64_t kv_bytes_per_token(int64_t bytes_per_element) const {
    return 2 * num_layers * num_kv_heads * head_dim * bytes_per_element;
  }
};

/// Checks that the fields agree (heads divide, sizes positive and below 2^31, head_dim even).
/// Errors: kCorrupt or kUnsupported, naming the field; `where` names the file.
[[nodiscard]] Status validate(const ModelConfig& config, std::string_view where);

/// Shapes of the synthetic models: "llama-tiny" (tests), "smollm2-135m", "llama-3.1-8b".
/// Errors: kNotFound with the nearest name.
[[nodiscard]] Result<ModelConfig> synthetic_config(std::string_view arch);

}  // namespace triptych
