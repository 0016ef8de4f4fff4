// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Vector functions that several kernels share, compiled once per instruction set.

// Highway compiles this header several times; `#pragma once` would stop after the first.
#if defined(TRIPTYCH_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_KERNELS_CPU_MATH_INL_H_
#undef TRIPTYCH_KERNELS_CPU_MATH_INL_H_
#else
#define TRIPTYCH_KERNELS_CPU_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// silu(x) = x / (1 + exp(-x)). exp is within 1 ulp on (-inf, 88]; below -88 the result is less
/// than 1e-36 in magnitude either way.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu(D d, V x) {
  const V exponent = hn::Min(hn::Neg(x), hn::Set(d, 88.0f));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, exponent)));
}

/// dst[j * dst_stride + i] = src[i * src_stride + j] for i, j < 4.
HWY_INLINE void transpose_4x4(const float* src, size_t src_stride, float* dst, size_t dst_stride) {
  const hn::FixedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, src);
  const auto r1 = hn::LoadU(d, src + src_stride);
  const auto r2 = hn::LoadU(d, src + 2 * src_stride);
  const auto r3 = hn::LoadU(d, src + 3 * src_stride);
  const auto even_low = hn::InterleaveLower(d, r0, r2);
  const auto odd_low = hn::InterleaveLower(d, r1, r3);
  const auto even_high = hn::InterleaveUpper(d, r0, r2);
  const auto odd_high = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, dst);
  hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, dst + dst_stride);
  hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, dst + 2 * dst_stride);
  hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, dst + 3 * dst_stride);
}

/// dst[j * dst_stride + i] = src[i * src_stride + j] for i < rows, j < columns.
HWY_INLINE void transpose(const float* src, size_t src_stride, size_t rows, size_t columns,
                          float* dst, size_t dst_stride) {
  size_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    size_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      transpose_4x4(src + i * src_stride + j, src_stride, dst + j * dst_stride + i, dst_stride);
    }
    for (; j < columns; ++j) {
      for (size_t r = i; r < i + 4; ++r) dst[j * dst_stride + r] = src[r * src_stride + j];
    }
  }
  for (; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) dst[j * dst_stride + i] = src[i * src_stride + j];
  }
}

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRIPTYCH_KERNELS_CPU_MATH_INL_H_
