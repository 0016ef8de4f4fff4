// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What the operations of kernels/cuda/decoder_ops.h must move and compute. Elements have two bytes.
// Indices, positions and frequencies are left out: a few bytes a row.
#pragma once

#include <cstdint>

#include "kernels/cost.h"

namespace triptych {

inline constexpr int64_t kElementBytes = 2;

/// `read` and `written` elements.
[[nodiscard]] constexpr KernelCost element_cost(int64_t read, int64_t written, int64_t flops) {
  return {
      .bytes_read = read * kElementBytes, .bytes_written = written * kElementBytes, .flops = flops};
}

/// Embedding or gathering of rows.
[[nodiscard]] constexpr KernelCost row_copy_cost(int64_t rows, int64_t columns) {
  return element_cost(rows * columns, rows * columns, 0);
}
[[nodiscard]] constexpr KernelCost add_cost(int64_t count) {
  return element_cost(2 * count, count, count);
}
[[nodiscard]] constexpr KernelCost add_bias_cost(int64_t rows, int64_t columns) {
  return element_cost((rows + 1) * columns, rows * columns, rows * columns);
}
/// exp counts as one.
[[nodiscard]] constexpr KernelCost swiglu_cost(int64_t rows, int64_t columns) {
  return element_cost(2 * rows * columns, rows * columns, 5 * rows * columns);
}
[[nodiscard]] constexpr KernelCost head_norm_cost(int64_t rows, int64_t heads, int64_t head_dim) {
  const int64_t count = rows * heads * head_dim;
  return element_cost(count + head_dim, count, 4 * count);
}
/// Six operations a pair; cos and sin are not counted.
[[nodiscard]] constexpr KernelCost rope_cost(int64_t rows, int64_t heads, int64_t head_dim) {
  const int64_t count = rows * heads * head_dim;
  return element_cost(count, count, 3 * count);
}
[[nodiscard]] constexpr KernelCost kv_append_cost(int64_t rows, int64_t num_kv_heads,
                                                  int64_t head_dim) {
  const int64_t count = 2 * rows * num_kv_heads * head_dim;
  return element_cost(count, count, 0);
}
/// Of keys or of values: the old cache and the new rows are read, the longer cache is written.
[[nodiscard]] constexpr KernelCost kv_concat_cost(int64_t total_tokens, int64_t num_kv_heads,
                                                  int64_t head_dim) {
  const int64_t count = total_tokens * num_kv_heads * head_dim;
  return element_cost(count, count, 0);
}
/// Bias and norms add their operations; their own bytes are a row's.
[[nodiscard]] constexpr KernelCost rope_kv_append_cost(int64_t rows, int64_t num_q_heads,
                                                       int64_t num_kv_heads, int64_t head_dim,
                                                       bool bias, bool norm) {
  const int64_t rotated = rows * (num_q_heads + num_kv_heads) * head_dim;
  const int64_t count = rotated + rows * num_kv_heads * head_dim;
  const int64_t weights = (bias ? count / rows : 0) + (norm ? 2 * head_dim : 0);
  return element_cost(count + weights, count,
                      3 * rotated + (bias ? count : 0) + (norm ? 4 * rotated : 0));
}

}  // namespace triptych
