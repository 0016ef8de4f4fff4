// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// ModelWeights: a checkpoint brought into the format of one stack's `weights` axis.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/model_config.h"
#include "kernels/common/dtype.h"

namespace triptych {

/// The `weights` axis.
enum class WeightScheme : uint8_t {
  kF32,       ///< Oracle for tests and references: every matrix as f32.
  kF16,       ///< Every matrix as f16.
  kBF16,      ///< Every matrix as bf16.
  kW4A16G32,  ///< 4-bit codes with scale and minimum per 32 along K (kQ4_1).
  kW4A16G64,  ///< The same per 64 (kQ4_1_G64), always made by round-to-nearest.
  kStored,    ///< Every matrix exactly as the checkpoint holds it, of whatever type.
};

[[nodiscard]] std::string_view weight_scheme_name(WeightScheme scheme);  ///< "w4a16-g32"
/// Errors: kInvalidArgument listing the names.
[[nodiscard]] Result<WeightScheme> parse_weight_scheme(std::string_view text);

/// The type that a matrix stored as `stored` is brought to; `table` says embedding or lm_head. See
/// ModelWeights for the rules.
[[nodiscard]] DType loaded_dtype(WeightScheme scheme, DType stored, bool table);

struct LayerWeights {
  std::vector<float> attn_norm;
  WeightView q, k, v, o;
  std::vector<float> q_bias, k_bias, v_bias;  ///< Empty unless ModelConfig::qkv_bias.
  std::vector<float> q_norm, k_norm;          ///< [head_dim]; empty unless ModelConfig::qk_norm.
  std::vector<float> ffn_norm;
  WeightView gate, up, down;
};

/// All weights of a model for one scheme. Views point into `checkpoint`'s mapping or into
/// `storage`. Immutable and shared by every engine that uses the same scheme.
///
/// A quantized scheme quantizes the linear layers of the blocks. A matrix that the checkpoint
/// already holds in a quantized type at least as fine keeps its own codes and scales (`kept` counts
/// them): Q4_1, Q4_0 and Q4_K blocks under kW4A16G32. Embedding and lm_head keep the checkpoint's
/// type if that is quantized, and are f16 otherwise.
struct ModelWeights {
  ModelConfig config;
  WeightScheme scheme = WeightScheme::kF16;
  WeightView embed;
  WeightView lm_head;  ///< Equals `embed` when tied.
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;
  int64_t kept = 0;       ///< Matrices used exactly as stored.
  int64_t converted = 0;  ///< Matrices converted or quantized on load.

  std::shared_ptr<const Checkpoint> checkpoint;
  std::vector<std::vector<std::byte>> storage;

  /// Bytes of all matrices, norms and biases; a tied lm_head counts once.
  [[nodiscard]] int64_t bytes() const;
  /// Bytes of weights that one decode step must read: all but the embedding table, of which a step
  /// reads one row per sequence (unless it is also the lm_head).
  [[nodiscard]] int64_t bytes_per_decode_step() const;
};

/// Errors: those of Checkpoint::tensor; kUnsupported if K does not fit the group.
[[nodiscard]] Result<std::shared_ptr<const ModelWeights>> load_weights(
    std::shared_ptr<const Checkpoint> checkpoint, WeightScheme scheme);

}  // namespace triptych
