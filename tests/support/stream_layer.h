// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A linear layer for the tests of kernels/cuda/stream_linear.h, and its sums in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/cuda_handles.h"
#include "kernels/cuda/stream_linear.h"
#include "tests/support/stream_numbers.h"

namespace triptych {

inline constexpr float kStreamEps = 1e-5f;

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
        w(random_numbers<T>(1, n * k, 0.0, deviation)),
        x(random_numbers<T>(2, x_rows * k, 0.1, 1.5)),
        norm(random_numbers<T>(3, k, 1.0, 0.3)),
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
  /// Most rows that `variant` of the weight takes, 16 of them at most.
  [[nodiscard]] int64_t max_rows(const StreamWeight<T>& variant) const {
    return variant.tma && normed ? kMaxNarrowStreamRows : kMaxStreamRows;
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
  /// normed input is rounded to T on its own, up to its unit roundoff of it: the errors of the
  /// terms are independent, and a sum of them beyond six standard deviations does not happen.
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
            sum,
            0x1.0p-19 * magnitude + (normed ? 6 * Rounding<T>::kUnit * std::sqrt(squares / 3) : 0)};
      }
    }
    return all;
  }
};

}  // namespace triptych
