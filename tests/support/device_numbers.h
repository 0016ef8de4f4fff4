// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 numbers of CUDA kernels in host tests: conversion, rounding errors, copies.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda_handles.h"

namespace triptych {

template <class T>
struct Rounding;
/// unit: largest relative error of rounding to nearest; smallest: of the subnormals.
template <>
struct Rounding<__half> {
  static constexpr const char* kName = "f16";
  static constexpr double kUnit = 0x1.0p-11;
  static constexpr double kSmallest = 0x1.0p-24;
  static __half from(float value) { return __float2half_rn(value); }
  static float to(__half value) { return __half2float(value); }
};
template <>
struct Rounding<__nv_bfloat16> {
  static constexpr const char* kName = "bf16";
  static constexpr double kUnit = 0x1.0p-8;
  static constexpr double kSmallest = 0x1.0p-133;
  static __nv_bfloat16 from(float value) { return __float2bfloat16_rn(value); }
  static float to(__nv_bfloat16 value) { return __bfloat162float(value); }
};

/// What one rounding to T of an f32 result may be off by, where f32 arithmetic was off by a 64th of
/// that at most.
template <class T>
[[nodiscard]] double rounded_once(double exact) {
  return Rounding<T>::kUnit * (1.0 + 0x1.0p-6) * std::abs(exact) + Rounding<T>::kSmallest;
}

template <class T>
[[nodiscard]] std::vector<T> random_numbers(uint64_t seed, int64_t count, double mean,
                                            double deviation) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Rounding<T>::from(static_cast<float>(mean + deviation * random_normal(seed, i)));
  }
  return values;
}

/// As doubles, for references.
template <class T>
[[nodiscard]] std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> out;
  out.reserve(values.size());
  for (const T value : values) out.push_back(static_cast<double>(Rounding<T>::to(value)));
  return out;
}

template <class T>
[[nodiscard]] DeviceBuffer<T> to_device(const std::vector<T>& values) {
  DeviceBuffer<T> buffer(values.size());
  if (values.empty()) return buffer;
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(buffer.data(), values.data(), buffer.size_bytes(), cudaMemcpyHostToDevice));
  // From pageable memory the copy may still be under way, and streams that do not wait for the
  // default one would start before its end.
  TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());
  return buffer;
}

/// After everything that was launched before.
template <class T>
[[nodiscard]] std::vector<T> to_host(const DeviceBuffer<T>& buffer) {
  std::vector<T> values(buffer.size());
  if (values.empty()) return values;
  TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(values.data(), buffer.data(), buffer.size_bytes(), cudaMemcpyDeviceToHost));
  return values;
}

/// `count` of NaN: what a kernel must write shows where it did not.
template <class T>
[[nodiscard]] std::vector<T> unwritten(int64_t count) {
  return std::vector<T>(static_cast<size_t>(count), Rounding<T>::from(std::nanf("")));
}

/// `bound`: what each element may be off by.
template <class T>
void expect_near(const std::vector<T>& got, const std::vector<double>& expected,
                 const std::vector<double>& bound) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(Rounding<T>::to(got[i]), expected[i], bound[i]) << "element " << i;
  }
}
template <class T>
void expect_rounded_once(const std::vector<T>& got, const std::vector<double>& expected) {
  std::vector<double> bound;
  for (const double value : expected) bound.push_back(rounded_once<T>(value));
  expect_near(got, expected, bound);
}
template <class T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(reinterpret_cast<const uint16_t&>(got[i]),
              reinterpret_cast<const uint16_t&>(expected[i]))
        << "element " << i;
  }
}

}  // namespace triptych
