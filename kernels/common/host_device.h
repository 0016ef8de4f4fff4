// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic that gives the same bits on the host and on a CUDA device. nvcc would contract a
// product and a sum into one rounding; the functions below say where one happens.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TRIPTYCH_HOST_DEVICE __host__ __device__
#else
#define TRIPTYCH_HOST_DEVICE
#endif

namespace triptych {

/// a * b + c, rounded once.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline float fma_rn(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// a * b, rounded and never part of an fma.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline float mul_rn(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// a + b, rounded and never part of an fma.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline float add_rn(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

/// The nearest integer, the even one of two.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline float round_even(float a) {
#ifdef __CUDA_ARCH__
  return rintf(a);
#else
  return std::nearbyint(a);
#endif
}

[[nodiscard]] TRIPTYCH_HOST_DEVICE inline float float_from_bits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

}  // namespace triptych
