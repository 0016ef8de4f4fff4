// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Products of many rows of x: a panel of W is decoded to f32 once per block of x and multiplied by
// a register-blocked kernel. Vectors run over rows of x, so W needs no transposition.
#pragma once

#include <cstdint>

#include "kernels/common/dtype.h"

namespace triptych::cpu {

/// Rows of W per register tile; a range should start at a multiple.
inline constexpr int64_t kGemmGrain = 12;

/// x transposed into tiles of `tile_rows` rows: tile t holds [columns, tile_rows] f32, and the last
/// may be half as wide. Rows past m are zero.
struct PackedX {
  const float* data = nullptr;
  int64_t m = 0;
  int64_t columns = 0;
};
/// Rows of x in one tile; depends on the instruction set.
[[nodiscard]] int64_t gemm_tile_rows();
/// Floats of a packed x.
[[nodiscard]] int64_t gemm_packed_floats(int64_t m, int64_t columns);
/// Packs tile `tile` of x [m, columns], rows x_stride apart, to its place in `packed`.
void gemm_pack_tile(const float* x, int64_t x_stride, int64_t m, int64_t columns, int64_t tile,
                    float* packed);

/// y[i * y_stride + n] = dot(x row i, W row n) for n in [begin, end). With `up` set: the product
/// with w goes through silu and is multiplied by the product with up.
struct GemmRange {
  PackedX x;
  WeightView w;
  const WeightView* up = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};
/// Uses scratch of the calling thread, about 300 KB, kept for the next call.
void gemm(const GemmRange& range);

}  // namespace triptych::cpu
