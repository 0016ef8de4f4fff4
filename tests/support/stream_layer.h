// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A linear layer for the tests of kernels/cuda/stream_linear.h, and its sums in double precision.
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
#include "kernels/cuda/stream_linear.h"

namespace triptych {

inline constexpr float kStreamEps = 1e-5f;

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

/// A layer and rows of input, on the host and on the device.
template <class T>
struct Layer {
  int64_t n, k, x_rows;
  bool normed;
  std::vector<T> w, x, norm;
  DeviceBuffer<T> device_w, device_x, device_norm;
  StreamWeight<T> weight;

  Layer(int64_t rows, int64_t columns, bool with_norm, double deviation = 1.0,
        int64_t num_x_rows = kMaxStreamRows)
      : n(rows),
        k(columns),
        x_rows(num_x_rows),
        normed(with_norm),
        w(random_values<T>(1, n * k, 0.0, deviation)),
        x(random_values<T>(2, x_rows * k, 0.1, 1.5)),
        norm(random_values<T>(3, k, 1.0, 0.3)),
        device_w(to_device(w)),
        device_x(to_device(x)),
        device_norm(to_device(norm)),
        weight(make_stream_weight<T>(device_w.data(), n, k).value()) {}

  [[nodiscard]] StreamInput<T> input(int64_t m, int64_t first_row = 0) const {
    return {.x = device_x.data() + first_row * k,
            .m = m,
            .norm = normed ? device_norm.data() : nullptr,
            .eps = kStreamEps};
  }
  [[nodiscard]] std::vector<double> input_row(int64_t row) const {
    std::vector<double> values(static_cast<size_t>(k));
    double squares = 0;
    for (int64_t i = 0; i < k; ++i) {
      values[static_cast<size_t>(i)] = to_double(x[static_cast<size_t>(row * k + i)]);
      squares += values[static_cast<size_t>(i)] * values[static_cast<size_t>(i)];
    }
    if (!normed) return values;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(k) + kStreamEps);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] *= scale * to_double(norm[i]);
    }
    return values;
  }
  /// The sum before it is rounded: [x_rows, n]. Its f32 additions err by 2^-24 of what has come
  /// together each; 2^-19 of the sum of magnitudes covers chains of 32 of them. Each element of a
  /// normed input is rounded to T on its own, up to kRounding of it: the errors of the terms are
  /// independent, and a sum of them beyond six standard deviations does not happen.
  [[nodiscard]] std::vector<Expected> sums() const {
    std::vector<Expected> all(static_cast<size_t>(x_rows * n));
    std::vector<double> weights(w.size());
    std::transform(w.begin(), w.end(), weights.begin(), to_double<T>);
    for (int64_t row = 0; row < x_rows; ++row) {
      const std::vector<double> in = input_row(row);
      for (int64_t r = 0; r < n; ++r) {
        double sum = 0, magnitude = 0, squares = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double term = weights[static_cast<size_t>(r * k + i)] * in[static_cast<size_t>(i)];
          sum += term;
          magnitude += std::abs(term);
          squares += term * term;
        }
        all[static_cast<size_t>(row * n + r)] = {
            sum, 0x1.0p-19 * magnitude + (normed ? 6 * kRounding<T> * std::sqrt(squares / 3) : 0)};
      }
    }
    return all;
  }
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
