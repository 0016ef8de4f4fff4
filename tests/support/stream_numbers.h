// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Numbers of the tests of kernels/cuda/stream_linear.h: on both sides, and how near they must be.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/cuda_handles.h"

namespace triptych {

template <class T>
T from_double(double v) {
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(static_cast<float>(v));
  if constexpr (!std::is_same_v<T, __half>) return __float2bfloat16_rn(static_cast<float>(v));
}
template <class T>
double to_double(T v) {
  return static_cast<double>(static_cast<float>(v));
}
/// Unit roundoff.
template <class T>
constexpr double kRounding = std::is_same_v<T, __half> ? 0x1.0p-11 : 0x1.0p-8;

template <class T>
std::vector<T> random_values(uint64_t seed, int64_t count, double mean, double deviation) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = from_double<T>(mean + deviation * random_normal(seed, i));
  }
  return values;
}
template <class T>
DeviceBuffer<T> to_device(const std::vector<T>& values) {
  DeviceBuffer<T> buffer(values.size());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(buffer.data(), values.data(), buffer.size_bytes(), cudaMemcpyHostToDevice));
  return buffer;
}
template <class T>
std::vector<T> to_host(const DeviceBuffer<T>& buffer) {
  std::vector<T> values(buffer.size());
  TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(values.data(), buffer.data(), buffer.size_bytes(), cudaMemcpyDeviceToHost));
  return values;
}
/// Every element NaN: what a kernel leaves out shows.
template <class T>
DeviceBuffer<T> poisoned(int64_t count) {
  DeviceBuffer<T> buffer(static_cast<size_t>(count));
  TRIPTYCH_CUDA_CHECK(cudaMemset(buffer.data(), 0xFF, buffer.size_bytes()));
  TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());  // the tests' streams do not wait for it
  return buffer;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// A value with the error that a correct kernel may have.
struct Expected {
  double value = 0;
  double tolerance = 0;
};

template <class T>
double tolerance_of(Expected want) {
  return want.tolerance + kRounding<T> * std::abs(want.value) + 0x1.0p-24;
}
template <class T>
void expect_near(T got, Expected want, const std::string& where) {
  EXPECT_NEAR(to_double(got), want.value, tolerance_of<T>(want)) << where;
}
inline std::string at(int64_t m, int64_t row, int64_t column) {
  return "m " + std::to_string(m) + " row " + std::to_string(row) + " column " +
         std::to_string(column);
}

template <class T>
void expect_sums(const std::vector<T>& y, const std::vector<Expected>& want, int64_t m, int64_t n) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t c = 0; c < n; ++c) {
      const T got = y[static_cast<size_t>(row * n + c)];
      const Expected e = want[static_cast<size_t>(row * n + c)];
      const bool near = std::abs(to_double(got) - e.value) <= tolerance_of<T>(e);
      if (!near) expect_near(got, e, at(m, row, c));  // a text for each number would take long
    }
    if (testing::Test::HasFailure()) return;
  }
}

/// silu(gate) * up.
inline Expected silu_product(const Expected& gate, const Expected& up) {
  const double silu = gate.value / (1.0 + std::exp(-gate.value));
  // The slope of silu is at most 1.1; exp in f32 errs by a few 2^-23, relative.
  return {silu * up.value, 1.1 * gate.tolerance * (std::abs(up.value) + up.tolerance) +
                               std::abs(silu) * up.tolerance +
                               0x1.0p-19 * std::abs(silu * up.value)};
}

}  // namespace triptych
