// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/gemv.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemv.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

// 4 KiB are 140 ns at 30 GB/s, a little more than the latency of memory.
constexpr size_t kPrefetchBytes = 8192;
constexpr size_t kCacheLine = 64;

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
  // The R rows are R short streams, which hardware prefetchers do not follow from one tile to the
  // next; as memory the tiles are one stream, so it is fetched ahead as such.
  const uint8_t* ahead = w + kPrefetchBytes;
  size_t k = 0;
  for (; k + Codec::kElements <= columns; k += Codec::kElements, w += Codec::kBytes) {
    TRIPTYCH_UNROLL for (size_t i = 0; i < R * Codec::kBytes; i += kCacheLine) {
      hwy::Prefetch(ahead + i);
    }
    ahead += R * Codec::kBytes;
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

// One tile shape serves every remainder: missing rows of x repeat the last one, and a tile that
// would run past the matrix begins earlier and computes rows again. A matrix of fewer than R rows
// is taken row by row, with stride 0.
template <class Codec, size_t R, size_t M>
HWY_NOINLINE void run_rows(const GemvRange& args) {
  const float* x[M];
  for (size_t m = 0; m < M; ++m) {
    x[m] = args.x + std::min(static_cast<int64_t>(m), args.m - 1) * args.x_stride;
  }
  constexpr auto kR = static_cast<int64_t>(R);
  const bool fits = args.w.rows >= kR;
  const auto stride = fits ? static_cast<size_t>(row_bytes(args.w.dtype, args.w.columns)) : 0;
  const int64_t step = fits ? kR : 1;
  for (int64_t n = args.begin; n < args.end; n += step) {
    const int64_t first = fits ? std::min(n, args.w.rows - kR) : n;
    float sums[M][R];
    dot_tile<Codec, R, M>(reinterpret_cast<const uint8_t*>(args.w.row(first)), stride, x,
                          static_cast<size_t>(args.w.columns), sums);
    const int64_t count = std::min(step, args.end - n);
    for (int64_t i = 0; i < args.m; ++i) {
      std::copy_n(sums[i] + (n - first), count, args.out + i * args.out_stride + n - args.begin);
    }
  }
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
    if (args.m == 1) return run_rows<Codec, Codec::kPlain ? 2 : 4, 1>(args);
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
