// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Products of few rows of x, streaming the weights once, on the calling thread.
#pragma once

#include <cstdint>

#include "kernels/common/dtype.h"

namespace triptych::cpu {

/// Rows of x that one pass over the weights serves: 8 rows times 2 rows of W are 16 sums, half of
/// 32 vector registers. From there on a GEMM, which pads x to whole vectors, does less work.
inline constexpr int64_t kMaxGemvRows = 8;
/// Rows of W that share loads of x; a range should have a multiple of it.
inline constexpr int64_t kGemvGrain = 4;

/// out[i * out_stride + n - begin] = dot(x row i, W row n) for i < m <= kMaxGemvRows and n in
/// [begin, end). Each sum has its own order, along K: it depends neither on m nor on the range.
struct GemvRange {
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t m = 0;
  WeightView w;
  int64_t begin = 0;
  int64_t end = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};
void gemv(const GemvRange& range);

/// Elements [first, first + count) of row r of w as f32; first is a multiple of the block, and so
/// is count unless the type is plain.
void dequantize_span(const WeightView& w, int64_t r, int64_t first, int64_t count, float* out);

}  // namespace triptych::cpu
