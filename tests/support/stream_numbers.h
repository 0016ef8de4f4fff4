// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Numbers of the tests of kernels/cuda/stream_linear.h: on both sides, and how near they must be.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/common/cuda_check.h"
#include "tests/support/device_numbers.h"

namespace triptych {

template <class T>
T from_double(double v) {
  return Rounding<T>::from(static_cast<float>(v));
}
template <class T>
double to_double(T v) {
  return static_cast<double>(Rounding<T>::to(v));
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
  return want.tolerance + Rounding<T>::kUnit * std::abs(want.value) + 0x1.0p-24;
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
