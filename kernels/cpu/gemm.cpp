// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "kernels/cpu/gemv.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr DF kF;
constexpr size_t kLanes = hn::MaxLanes(DF());
constexpr size_t kTile = 2 * kLanes;  // rows of x per register tile

// AVX-512 and NEON have 32 vector registers: 12 x 2 sums, 2 vectors of x and the broadcast weight.
// With 16 registers 6 x 2 sums fit. kGemmGrain is a multiple of both.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr size_t kRegisterRows = 12;
#else
constexpr size_t kRegisterRows = 6;
#endif
static_assert(kGemmGrain % kRegisterRows == 0);

// A panel of W, 48 x 768 f32 = 144 KiB, shares a 512 KiB second-level cache with one tile of x
// (96 KiB) and the sums (48 KiB). 768 is a multiple of every block.
constexpr size_t kPanelRows = 48;
constexpr size_t kPanelColumns = 768;
// 16 floats more than a multiple of 4 KiB / 4, so that 12 rows fall into different cache sets.
constexpr size_t kPanelStride = kPanelColumns + 16;
// Rows of x that share one decoding of a panel.
constexpr size_t kBlockRows = 256;

// sums[r][lane] (+)= sum over k < depth of w[r][k] * x[k][lane], for kRegisterRows rows of W and
// kVectors vectors of x.
template <size_t kVectors>
HWY_NOINLINE void multiply_tile(const float* HWY_RESTRICT w, const float* HWY_RESTRICT x,
                                size_t depth, bool accumulate, float* HWY_RESTRICT sums) {
  VF sum[kRegisterRows][kVectors];
  TRIPTYCH_UNROLL for (size_t r = 0; r < kRegisterRows; ++r) {
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = accumulate ? hn::Load(kF, sums + r * kBlockRows + v * kLanes) : hn::Zero(kF);
    }
  }
  for (size_t k = 0; k < depth; ++k, x += kVectors * kLanes) {
    VF xv[kVectors];
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) xv[v] = hn::Load(kF, x + v * kLanes);
    TRIPTYCH_UNROLL for (size_t r = 0; r < kRegisterRows; ++r) {
      const VF wv = hn::Set(kF, w[r * kPanelStride + k]);
      TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(wv, xv[v], sum[r][v]);
      }
    }
  }
  TRIPTYCH_UNROLL for (size_t r = 0; r < kRegisterRows; ++r) {
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(sum[r][v], kF, sums + r * kBlockRows + v * kLanes);
    }
  }
}

// sums [rows, kBlockRows] = W rows [n, n + rows) times x rows [m0, m0 + m), K block by K block.
void multiply_panel(const PackedX& x, const WeightView& w, int64_t n, size_t rows, size_t m0,
                    size_t m, float* panel, float* sums) {
  const auto columns = static_cast<size_t>(x.columns);
  for (size_t k = 0; k < columns; k += kPanelColumns) {
    const size_t depth = std::min(kPanelColumns, columns - k);
    for (size_t r = 0; r < rows; ++r) {
      dequantize_span(w, n + static_cast<int64_t>(r), static_cast<int64_t>(k),
                      static_cast<int64_t>(depth), panel + r * kPanelStride);
    }
    // The last register tile may run past `rows`: zeros cost less than a second tile shape.
    const size_t padded = (rows + kRegisterRows - 1) / kRegisterRows * kRegisterRows;
    std::fill(panel + rows * kPanelStride, panel + padded * kPanelStride, 0.0f);
    for (size_t i = 0; i < m; i += kTile) {
      const bool full = m - i > kLanes;
      const size_t width = full ? kTile : kLanes;
      const float* tile = x.data + (m0 + i) * columns + k * width;
      for (size_t r = 0; r < rows; r += kRegisterRows) {
        const float* from = panel + r * kPanelStride;
        float* to = sums + r * kBlockRows + i;
        full ? multiply_tile<2>(from, tile, depth, k > 0, to)
             : multiply_tile<1>(from, tile, depth, k > 0, to);
      }
    }
  }
}

void silu_times(float* gate, const float* up, size_t rows, size_t m) {
  for (size_t r = 0; r < rows; ++r, gate += kBlockRows, up += kBlockRows) {
    for (size_t i = 0; i < m; i += kLanes) {
      hn::Store(hn::Mul(silu(kF, hn::Load(kF, gate + i)), hn::Load(kF, up + i)), kF, gate + i);
    }
  }
}

void Gemm(const GemmRange& range) {
  thread_local Scratch scratch;
  float* panel = scratch.floats(kPanelRows * (kPanelStride + 2 * kBlockRows));
  float* sums = panel + kPanelRows * kPanelStride;
  float* up_sums = sums + kPanelRows * kBlockRows;
  const auto total = static_cast<size_t>(range.x.m);
  for (size_t m0 = 0; m0 < total; m0 += kBlockRows) {
    const size_t m = std::min(kBlockRows, total - m0);
    for (int64_t n = range.begin; n < range.end; n += static_cast<int64_t>(kPanelRows)) {
      const size_t rows = std::min(kPanelRows, static_cast<size_t>(range.end - n));
      multiply_panel(range.x, range.w, n, rows, m0, m, panel, sums);
      if (range.up != nullptr) {
        multiply_panel(range.x, *range.up, n, rows, m0, m, panel, up_sums);
        silu_times(sums, up_sums, rows, m);
      }
      transpose(sums, kBlockRows, rows, m, range.y + static_cast<int64_t>(m0) * range.y_stride + n,
                static_cast<size_t>(range.y_stride));
    }
  }
}

int64_t TileRows() { return static_cast<int64_t>(kTile); }

int64_t PackedFloats(int64_t m, int64_t columns) {
  const auto lanes = static_cast<int64_t>(kLanes);
  return (m + lanes - 1) / lanes * lanes * columns;
}

void PackTile(const float* x, int64_t x_stride, int64_t m, int64_t columns, int64_t tile,
              float* packed) {
  // 16 columns of a tile are read by line and written within the first-level cache.
  constexpr size_t kStep = 16;
  const auto first = static_cast<size_t>(tile) * kTile;
  const size_t rows = std::min(kTile, static_cast<size_t>(m) - first);
  const size_t width = rows > kLanes ? kTile : kLanes;
  const float* from = x + static_cast<int64_t>(first) * x_stride;
  float* to = packed + first * static_cast<size_t>(columns);
  const auto depth = static_cast<size_t>(columns);
  if (rows < width) std::fill_n(to, depth * width, 0.0f);
  for (size_t k = 0; k < depth; k += kStep) {
    transpose(from + k, static_cast<size_t>(x_stride), rows, std::min(kStep, depth - k),
              to + k * width, width);
  }
}

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::cpu {
namespace {
HWY_EXPORT(Gemm);
HWY_EXPORT(TileRows);
HWY_EXPORT(PackedFloats);
HWY_EXPORT(PackTile);
}  // namespace

int64_t gemm_tile_rows() { return HWY_DYNAMIC_DISPATCH(TileRows)(); }

int64_t gemm_packed_floats(int64_t m, int64_t columns) {
  return HWY_DYNAMIC_DISPATCH(PackedFloats)(m, columns);
}

void gemm_pack_tile(const float* x, int64_t x_stride, int64_t m, int64_t columns, int64_t tile,
                    float* packed) {
  HWY_DYNAMIC_DISPATCH(PackTile)(x, x_stride, m, columns, tile, packed);
}

void gemm(const GemmRange& range) { HWY_DYNAMIC_DISPATCH(Gemm)(range); }

}  // namespace triptych::cpu
#endif
