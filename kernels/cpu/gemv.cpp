// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/gemv.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemv.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/cpu/codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

// sum[r][m] += W row r times x row m over one block; w is at the block of the first of R rows that
// lie `stride` bytes apart, x[m] at its first element. One chain of multiply-adds for each sum: a
// block takes longer to decode than two multiply-adds, so with R >= 2 their latency is hidden.
template <class Codec, size_t R, size_t M>
HWY_INLINE void add_block(const uint8_t* w, size_t stride, const float* const* x, size_t k,
                          VF (&sum)[R][M]) {
  typename Codec::Head head[R];
  TRIPTYCH_UNROLL for (size_t r = 0; r < R; ++r) head[r] = Codec::head(w + r * stride);
  for (size_t c = 0; c < Codec::kElements / kChunk; ++c) {
    VF values[R][kParts];
    TRIPTYCH_UNROLL for (size_t r = 0; r < R; ++r) {
      Codec::chunk(head[r], w + r * stride, c, values[r]);
    }
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      TRIPTYCH_UNROLL for (size_t m = 0; m < M; ++m) {
        const VF xv = hn::LoadU(kF, x[m] + k + c * kChunk + i * kLanes);
        TRIPTYCH_UNROLL for (size_t r = 0; r < R; ++r) {
          sum[r][m] = hn::MulAdd(values[r][i], xv, sum[r][m]);
        }
      }
    }
  }
}

// The last columns % 32 elements of a plain type, from copies padded with zeros.
template <class Codec, size_t R, size_t M>
HWY_INLINE void add_tail(const uint8_t* w, size_t stride, const float* const* x, size_t k,
                         size_t count, VF (&sum)[R][M]) {
  uint8_t w_pad[R * Codec::kBytes] = {};
  float x_pad[M][kChunk] = {};
  const float* x_rows[M];
  for (size_t r = 0; r < R; ++r) {
    std::memcpy(w_pad + r * Codec::kBytes, w + r * stride, count * Codec::kBytes / kChunk);
  }
  for (size_t m = 0; m < M; ++m) {
    x_rows[m] = x_pad[m];
    std::memcpy(x_pad[m], x[m] + k, count * sizeof(float));
  }
  add_block<Codec>(w_pad, Codec::kBytes, x_rows, 0, sum);
}

// out[m][r] = dot of R rows of W, `stride` bytes apart, and M rows of x.
template <class Codec, size_t R, size_t M>
HWY_INLINE void dot_tile(const uint8_t* w, size_t stride, const float* const* x, size_t columns,
                         float (&out)[M][R]) {
  VF sum[R][M];
  TRIPTYCH_UNROLL for (size_t r = 0; r < R; ++r) {
    TRIPTYCH_UNROLL for (size_t m = 0; m < M; ++m) sum[r][m] = hn::Zero(kF);
  }
  size_t k = 0;
  for (; k + Codec::kElements <= columns; k += Codec::kElements, w += Codec::kBytes) {
    add_block<Codec>(w, stride, x, k, sum);
  }
  if constexpr (Codec::kPlain) {
    if (k < columns) add_tail<Codec>(w, stride, x, k, columns - k, sum);
  }
  TRIPTYCH_UNROLL for (size_t r = 0; r < R; ++r) {
    TRIPTYCH_UNROLL for (size_t m = 0; m < M; ++m) {
      out[m][r] = hn::GetLane(hn::SumOfLanes(kF, sum[r][m]));
    }
  }
}

// Multiplies rows first + r * step, r < R, and writes the results of r in [skip, skip + count).
template <class Codec, size_t R, size_t M>
HWY_NOINLINE void run_tile(const GemvRange& args, const float* const* x, int64_t first,
                           int64_t step, int64_t skip, int64_t count) {
  float sums[M][R];
  const int64_t stride = step * row_bytes(args.w.dtype, args.w.columns);
  dot_tile<Codec, R, M>(reinterpret_cast<const uint8_t*>(args.w.row(first)),
                        static_cast<size_t>(stride), x, static_cast<size_t>(args.w.columns), sums);
  for (int64_t i = 0; i < args.m; ++i) {
    float* out = args.out + i * args.out_stride + first - args.begin;
    for (int64_t r = skip; r < skip + count; ++r) out[r * step] = sums[i][r];
  }
}

// The rows of a tile come from R equal parts of the range, so that memory is read as R long streams
// that hardware prefetchers follow; R neighbouring rows would be R short ones, at half the
// bandwidth. One tile shape serves every remainder: missing rows of x repeat the last one, the rows
// left over go into a tile of neighbours that begins early and computes some again, and a matrix of
// fewer than R rows is taken row by row, R times the same one.
template <class Codec, size_t R, size_t M>
HWY_INLINE void run_rows(const GemvRange& args) {
  constexpr auto kR = static_cast<int64_t>(R);
  const float* x[M];
  for (size_t m = 0; m < M; ++m) {
    x[m] = args.x + std::min(static_cast<int64_t>(m), args.m - 1) * args.x_stride;
  }
  const int64_t part = (args.end - args.begin) / kR;
  for (int64_t j = 0; j < part; ++j) {
    run_tile<Codec, R, M>(args, x, args.begin + j, part, 0, kR);
  }
  const int64_t left = args.begin + part * kR;
  if (args.w.rows >= kR) {
    const int64_t first = std::min(left, args.w.rows - kR);
    if (left < args.end) {
      run_tile<Codec, R, M>(args, x, first, 1, left - first, args.end - left);
    }
    return;
  }
  for (int64_t n = left; n < args.end; ++n) run_tile<Codec, R, M>(args, x, n, 0, 0, 1);
}

// Half of the vector registers hold sums, the other half decoded weights and what they come from.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr size_t kManySums = 16;
#else
constexpr size_t kManySums = 8;
#endif

void Gemv(const GemvRange& args) {
  with_codec(args.w.dtype, [&args](auto codec) HWY_ATTR {
    using Codec = decltype(codec);
    if (args.m == 1) return run_rows<Codec, 4, 1>(args);
    if (args.m == 2) return run_rows<Codec, 4, 2>(args);
    if (args.m <= 4) return run_rows<Codec, kManySums / 4, 4>(args);
    return run_rows<Codec, kManySums / 8, 8>(args);
  });
}

template <class Codec>
HWY_INLINE void dequantize_block(const uint8_t* block, float* out) {
  VF values[kParts];
  const typename Codec::Head head = Codec::head(block);
  for (size_t c = 0; c < Codec::kElements / kChunk; ++c) {
    Codec::chunk(head, block, c, values);
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      hn::StoreU(values[i], kF, out + c * kChunk + i * kLanes);
    }
  }
}

template <class Codec>
HWY_INLINE void dequantize_blocks(const uint8_t* block, size_t count, float* out) {
  size_t k = 0;
  for (; k + Codec::kElements <= count; k += Codec::kElements, block += Codec::kBytes) {
    dequantize_block<Codec>(block, out + k);
  }
  if constexpr (Codec::kPlain) {
    if (k == count) return;
    uint8_t padded[Codec::kBytes] = {};
    float tail[Codec::kElements];
    std::memcpy(padded, block, (count - k) * Codec::kBytes / Codec::kElements);
    dequantize_block<Codec>(padded, tail);
    std::memcpy(out + k, tail, (count - k) * sizeof(float));
  }
}

void Dequantize(DType dtype, const uint8_t* block, size_t count, float* out) {
  with_codec(dtype,
             [&](auto codec) HWY_ATTR { dequantize_blocks<decltype(codec)>(block, count, out); });
}

int64_t Target() { return HWY_TARGET; }

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::cpu {
namespace {
HWY_EXPORT(Gemv);
HWY_EXPORT(Dequantize);
HWY_EXPORT(Target);
}  // namespace

void gemv(const GemvRange& range) { HWY_DYNAMIC_DISPATCH(Gemv)(range); }

void dequantize_span(const WeightView& w, int64_t r, int64_t first, int64_t count, float* out) {
  const auto* block = reinterpret_cast<const uint8_t*>(w.row(r) + row_bytes(w.dtype, first));
  HWY_DYNAMIC_DISPATCH(Dequantize)(w.dtype, block, static_cast<size_t>(count), out);
}

void dequantize_row(const WeightView& w, int64_t r, float* out) {
  dequantize_span(w, r, 0, w.columns, out);
}

std::string_view simd_target() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(Target)()); }

}  // namespace triptych::cpu
#endif
