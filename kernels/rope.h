// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: arguments, kinds and frequency tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace triptych {

/// Which two elements of a head form one rotated pair.
enum class RopeKind : uint8_t {
  kHalfSplit,    ///< (i, i + head_dim/2): Hugging Face checkpoints.
  kInterleaved,  ///< (2i, 2i + 1): Llama weights in GGUF files, whose Q and K rows are permuted.
};

/// Frequency scaling of Llama 3.1 (kLlama3) or plain position interpolation (kLinear).
enum class RopeScalingKind : uint8_t { kNone, kLinear, kLlama3 };
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_max_position = 8192.0;
};

/// inv_freq[i] = theta^(-2i / head_dim), i in [0, head_dim/2), then scaled. Computed in double.
/// Source: Su et al. 2021; scaling as in the Llama 3.1 reference.
[[nodiscard]] std::vector<float> rope_inverse_frequencies(double theta, int64_t head_dim,
                                                          const RopeScaling& scaling);

/// Rotates pair i of head h of row t by angle positions[t] * inv_freq[i], in place.
/// x: [num_tokens, num_heads, head_dim] f32, rows x_stride elements apart; positions: [num_tokens].
struct RopeArgs {
  float* x = nullptr;
  int64_t x_stride = 0;
  std::span<const int32_t> positions;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  std::span<const float> inv_freq;
  RopeKind kind = RopeKind::kHalfSplit;
};

}  // namespace triptych
