// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Step: one pass through the model, as the operations see it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/sampling.h"

namespace triptych {

class KvCache;

/// A dense row-major matrix of activations in device memory; does not own it. The element type is
/// the device's (f32 on the CPU, f16 or bf16 on CUDA).
struct Tensor {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_bytes = 0;

  [[nodiscard]] int64_t bytes() const { return rows * row_bytes; }
  /// Rows [first, first + count).
  [[nodiscard]] Tensor slice(int64_t first, int64_t count) const {
    return {static_cast<std::byte*>(data) + first * row_bytes, count, columns, row_bytes};
  }
};

/// The rows that one sequence has in a step: its tokens [first_position, first_position +
/// num_tokens).
struct StepSequence {
  int64_t slot = 0;  ///< Its place in the KV cache.
  int64_t first_position = 0;
  int64_t num_tokens = 0;
};

/// A row of a step after which a token is chosen.
struct SampledRow {
  int64_t row = 0;
  int32_t slot = 0;  ///< Of its sequence.
  SampleKey key = {};
};

/// One pass through the model: any mix of prompt slices and single tokens of several sequences.
/// Host memory that must live until begin_step() has returned. The cache already has room for the
/// new tokens (KvCache::extend).
struct Step {
  /// [tokens]. A negative one stands for the token that slot -1 - tokens[i] was given in the step
  /// before, which the host may not know yet (RuntimeFeature::kOverlap).
  std::span<const int32_t> tokens = {};
  std::span<const int32_t> positions = {};       ///< [tokens]
  std::span<const StepSequence> sequences = {};  ///< Their rows lie one after another.
  std::span<const SampledRow> sampled = {};      ///< Ascending rows.
  KvCache* cache = nullptr;
  /// At least the number of tokens: rows beyond it are computed and mean nothing, so that batches
  /// of several sizes share one graph. 0 = none.
  int64_t padded_rows = 0;
  /// With padded rows: no sequence is longer, in this step and in all that share its graph.
  int64_t kv_bound = 0;

  /// Rows of every activation of this step.
  [[nodiscard]] int64_t rows() const {
    return std::max(padded_rows, static_cast<int64_t>(tokens.size()));
  }
};

}  // namespace triptych
