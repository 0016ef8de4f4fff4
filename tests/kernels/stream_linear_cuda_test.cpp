// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/stream_linear.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda_handles.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/stream_shape.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

constexpr float kEps = 1e-5f;

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

/// A layer with 16 rows of input, on the host and on the device.
template <class T>
struct Layer {
  int64_t n, k;
  bool normed;
  std::vector<T> w, x, norm;
  DeviceBuffer<T> device_w, device_x, device_norm;
  StreamWeight<T> weight;

  Layer(int64_t rows, int64_t columns, bool with_norm, double deviation = 1.0)
      : n(rows),
        k(columns),
        normed(with_norm),
        w(random_values<T>(1, n * k, 0.0, deviation)),
        x(random_values<T>(2, kMaxStreamRows * k, 0.1, 1.5)),
        norm(random_values<T>(3, k, 1.0, 0.3)),
        device_w(to_device(w)),
        device_x(to_device(x)),
        device_norm(to_device(norm)),
        weight(make_stream_weight<T>(device_w.data(), n, k).value()) {}

  [[nodiscard]] StreamInput<T> input(int64_t m, int64_t first_row = 0) const {
    return {.x = device_x.data() + first_row * k,
            .m = m,
            .norm = normed ? device_norm.data() : nullptr,
            .eps = kEps};
  }
  [[nodiscard]] std::vector<double> input_row(int64_t row) const {
    std::vector<double> values(static_cast<size_t>(k));
    double squares = 0;
    for (int64_t i = 0; i < k; ++i) {
      values[static_cast<size_t>(i)] = to_double(x[static_cast<size_t>(row * k + i)]);
      squares += values[static_cast<size_t>(i)] * values[static_cast<size_t>(i)];
    }
    if (!normed) return values;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(k) + kEps);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] *= scale * to_double(norm[i]);
    }
    return values;
  }
  /// The sum before it is rounded: [16, n]. Its f32 additions err by 2^-24 of what has come
  /// together each; 2^-19 of the sum of magnitudes covers chains of 32 of them. Each element of a
  /// normed input is rounded to T on its own, up to kRounding of it: the errors of the terms are
  /// independent, and a sum of them beyond six standard deviations does not happen.
  [[nodiscard]] std::vector<Expected> sums() const {
    std::vector<Expected> all(static_cast<size_t>(kMaxStreamRows * n));
    std::vector<double> weights(w.size());
    std::transform(w.begin(), w.end(), weights.begin(), to_double<T>);
    for (int64_t row = 0; row < kMaxStreamRows; ++row) {
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
void expect_near(T got, Expected want, const std::string& where) {
  const double tolerance = want.tolerance + kRounding<T> * std::abs(want.value) + 0x1.0p-24;
  EXPECT_NEAR(to_double(got), want.value, tolerance) << where;
}
std::string at(int64_t m, int64_t row, int64_t column) {
  return "m " + std::to_string(m) + " row " + std::to_string(row) + " column " +
         std::to_string(column);
}

template <class T>
class StreamLinear : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) stream_ = make_stream();
  }
  /// The variants that this device can run, as weights of the layer.
  static std::vector<StreamWeight<T>> variants(const Layer<T>& layer) {
    std::vector<StreamWeight<T>> all = {layer.weight};
    if (layer.weight.has_map) {
      all.push_back(layer.weight);
      all.back().has_map = false;
    }
    return all;
  }
  std::vector<T> run_linear(const Layer<T>& layer, const StreamWeight<T>& w, int64_t m,
                            int64_t first_row = 0) {
    const auto y = poisoned<T>(m * layer.n);
    const StreamLinearArgs<T> args{.input = layer.input(m, first_row), .w = &w, .y = y.data()};
    EXPECT_TRUE(stream_linear_supports(args).has_value());
    launch_stream_linear(args, stream_.get());
    return to_host(y);
  }
  Stream stream_;
};
using Types = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(StreamLinear, Types);

template <class T>
void expect_sums(const std::vector<T>& y, const std::vector<Expected>& want, int64_t m, int64_t n) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t c = 0; c < n; ++c) {
      expect_near(y[static_cast<size_t>(row * n + c)], want[static_cast<size_t>(row * n + c)],
                  at(m, row, c));
    }
    if (testing::Test::HasFailure()) return;
  }
}

TYPED_TEST(StreamLinear, SmallShapesEveryNumberOfRows) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{8, 64}, {16, 64}, {24, 128}, {40, 192}, {136, 256}, {264, 320}};
  for (const auto& [n, k] : shapes) {
    for (const bool normed : {false, true}) {
      SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "] normed " << normed);
      const Layer<T> layer(n, k, normed);
      const auto want = layer.sums();
      for (const StreamWeight<T>& w : this->variants(layer)) {
        for (int64_t m = 1; m <= kMaxStreamRows; ++m) {
          expect_sums(this->run_linear(layer, w, m), want, m, n);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TYPED_TEST(StreamLinear, ManyTilesABlockAndAnOddNumberOfPieces) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{8 * 16 * 132 + 8, 64}, {4520, 576}, {2200, 1536}};
  for (const auto& [n, k] : shapes) {
    SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "]");
    const Layer<T> layer(n, k, true);
    const auto want = layer.sums();
    for (const StreamWeight<T>& w : this->variants(layer)) {
      for (const int64_t m : {1, 8, 16}) expect_sums(this->run_linear(layer, w, m), want, m, n);
    }
  }
}

// x streams through a few places where it does not fit.
TYPED_TEST(StreamLinear, LongRows) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{264, 4096}, {600, 8192}, {200, 14336}, {136, 18944}, {72, 24576}};
  for (const auto& [n, k] : shapes) {
    for (const bool normed : {false, true}) {
      SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "] normed " << normed);
      const Layer<T> layer(n, k, normed);
      const auto want = layer.sums();
      for (const StreamWeight<T>& w : this->variants(layer)) {
        for (const int64_t m : {1, 4, 5, 8, 9, 16}) {
          expect_sums(this->run_linear(layer, w, m), want, m, n);
        }
      }
    }
  }
}

// Many tiles a block, so that the places for sums and for x are used again: rows of w repeat, and
// so must the results.
TYPED_TEST(StreamLinear, ManyTilesOfLongRows) {
  using T = TypeParam;
  constexpr int64_t kPeriod = 64;
  constexpr int64_t kRows = 90 * kPeriod + 8;
  for (const int64_t k : {8192, 14336}) {
    const Layer<T> layer(kPeriod, k, true);
    const auto want = layer.sums();
    std::vector<T> repeated;
    for (int64_t r = 0; r < kRows; ++r) {
      const auto row = layer.w.begin() + r % kPeriod * k;
      repeated.insert(repeated.end(), row, row + k);
    }
    const auto device_w = to_device(repeated);
    const StreamWeight<T> w = make_stream_weight<T>(device_w.data(), kRows, k).value();
    for (const int64_t m : {1, 5, 8, 9, 16}) {
      const auto y = poisoned<T>(m * kRows);
      launch_stream_linear(StreamLinearArgs<T>{.input = layer.input(m), .w = &w, .y = y.data()},
                           this->stream_.get());
      const auto got = to_host(y);
      for (int64_t i = 0; i < m * kRows; ++i) {
        const int64_t row = i / kRows;
        const int64_t column = i % kRows;
        if (column < kPeriod) {
          expect_near(got[static_cast<size_t>(i)],
                      want[static_cast<size_t>(row * kPeriod + column)], at(m, row, column));
        } else {
          EXPECT_EQ(to_double(got[static_cast<size_t>(i)]),
                    to_double(got[static_cast<size_t>(row * kRows + column % kPeriod)]))
              << at(m, row, column);
        }
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

TYPED_TEST(StreamLinear, AddsToTheResidual) {
  using T = TypeParam;
  const Layer<T> layer(200, 320, false);
  const auto sums = layer.sums();
  const auto residual = random_values<T>(7, kMaxStreamRows * layer.n, 0.0, 20.0);
  for (const StreamWeight<T>& w : this->variants(layer)) {
    for (const int64_t m : {1, 7, 8, 9, 16}) {
      const auto y = to_device(residual);
      launch_stream_linear(
          StreamLinearArgs<T>{.input = layer.input(m), .w = &w, .y = y.data(), .accumulate = true},
          this->stream_.get());
      const auto got = to_host(y);
      auto want = sums;
      for (size_t i = 0; i < want.size(); ++i) want[i].value += to_double(residual[i]);
      expect_sums(got, want, m, layer.n);
      for (size_t i = static_cast<size_t>(m * layer.n); i < got.size(); ++i) {
        ASSERT_EQ(to_double(got[i]), to_double(residual[i])) << "a row past m was written";
      }
    }
  }
}

TYPED_TEST(StreamLinear, ARowDoesNotDependOnTheOthers) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{136, 320}, {2200, 576}, {264, 4096}, {200, 14336}};
  for (const auto& [n, k] : shapes) {
    const Layer<T> layer(n, k, true);
    for (const StreamWeight<T>& w : this->variants(layer)) {
      const auto eight = this->run_linear(layer, w, 8);
      const auto sixteen = this->run_linear(layer, w, 16);
      const auto five = this->run_linear(layer, w, 5);
      for (int64_t row = 0; row < 8; ++row) {
        const auto row_of = [&](const std::vector<T>& y, int64_t r) {
          return std::vector<T>(y.begin() + r * n, y.begin() + (r + 1) * n);
        };
        EXPECT_TRUE(same_bits(this->run_linear(layer, w, 1, row), row_of(eight, row)))
            << "[" << n << ", " << k << "] row " << row << " alone";
        const auto nine = this->run_linear(layer, w, 9, row);
        EXPECT_TRUE(same_bits(row_of(nine, 8), row_of(sixteen, row + 8)))
            << "[" << n << ", " << k << "] row " << row << " among nine";
        EXPECT_TRUE(same_bits(row_of(eight, row), row_of(sixteen, row)) || !w.has_map)
            << "[" << n << ", " << k << "] row " << row << " among sixteen";
        EXPECT_TRUE(row >= 5 || same_bits(row_of(five, row), row_of(eight, row)))
            << "[" << n << ", " << k << "] row " << row << " among five";
      }
    }
  }
}

// Rows whose magnitudes f16 could not hold once multiplied with the weight of the norm, and rows
// that would lose their bits; a huge element among small ones, as trained models have them.
TYPED_TEST(StreamLinear, NormOfLargeSmallAndUnevenRows) {
  using T = TypeParam;
  Layer<T> layer(72, 576, true);
  for (int64_t row = 0; row < kMaxStreamRows; ++row) {
    const double scale = std::pow(10.0, static_cast<double>(row % 8) - 3.0);  // 1e-3 to 1e4
    for (int64_t i = 0; i < layer.k; ++i) {
      auto& x = layer.x[static_cast<size_t>(row * layer.k + i)];
      x = from_double<T>(to_double(x) * std::min(scale, 8000.0));
    }
    if (row >= 8) {
      layer.x[static_cast<size_t>(row * layer.k + row * (row % 2 == 0 ? 3 : 31))] =
          from_double<T>(std::min(scale * 500.0, 60000.0));
    }
  }
  for (T& gain : layer.norm) gain = from_double<T>(to_double(gain) * 8.0);
  layer.device_x = to_device(layer.x);
  layer.device_norm = to_device(layer.norm);
  const auto want = layer.sums();
  for (const StreamWeight<T>& w : this->variants(layer)) {
    for (const int64_t m : {8, 16}) expect_sums(this->run_linear(layer, w, m), want, m, layer.n);
  }
}

TYPED_TEST(StreamLinear, GateUp) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{8, 64}, {24, 128}, {208, 256}, {3072, 576}, {5640, 192}};
  for (const auto& [n, k] : shapes) {
    SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "]");
    const int64_t columns = n / 2;
    const Layer<T> layer(n, k, true);
    const auto sums = layer.sums();
    for (const StreamWeight<T>& w : this->variants(layer)) {
      for (const int64_t m : {1, 3, 8, 11, 16}) {
        const auto y = poisoned<T>(m * columns);
        launch_stream_gate_up(StreamGateUpArgs<T>{.input = layer.input(m), .w = &w, .y = y.data()},
                              this->stream_.get());
        const auto got = to_host(y);
        for (int64_t i = 0; i < m * columns; ++i) {
          const auto row = static_cast<size_t>(i / columns * n + i % columns);
          const Expected gate = sums[row];
          const Expected up = sums[row + static_cast<size_t>(columns)];
          const double silu = gate.value / (1.0 + std::exp(-gate.value));
          // The slope of silu is at most 1.1; exp in f32 errs by a few 2^-23, relative.
          const Expected want = {silu * up.value,
                                 1.1 * gate.tolerance * (std::abs(up.value) + up.tolerance) +
                                     std::abs(silu) * up.tolerance +
                                     0x1.0p-19 * std::abs(silu * up.value)};
          expect_near(got[static_cast<size_t>(i)], want, at(m, i / columns, i % columns));
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

struct QkvShape {
  int64_t num_q_heads, num_kv_heads, head_dim, k, page_size;
  RopeKind kind;
  bool bias;
};

/// A cache of a few pages whose table is a permutation, and rows at positions of all kinds.
template <class T>
struct QkvCase {
  static constexpr int64_t kPages = 24;
  static constexpr int64_t kStride = 6;  // pages a sequence
  QkvShape shape;
  Layer<T> layer;
  std::vector<T> bias;
  std::vector<int32_t> positions, sequences, table;
  std::vector<float> inv_freq;
  DeviceBuffer<T> device_bias;
  DeviceBuffer<int32_t> device_positions, device_sequences, device_table;
  DeviceBuffer<float> device_inv_freq;

  explicit QkvCase(const QkvShape& s)
      : shape(s),
        layer((s.num_q_heads + 2 * s.num_kv_heads) * s.head_dim, s.k, true),
        bias(random_values<T>(11, layer.n, 0.0, 3.0)) {
    for (int32_t row = 0; row < kMaxStreamRows; ++row) {
      positions.push_back((row * 37 + 5) % static_cast<int32_t>(kStride * s.page_size));
      // Two rows are padding; of the others four each belong to one sequence, at other positions.
      sequences.push_back(row % 8 == 3 ? -1 : row % 4);
    }
    for (int32_t i = 0; i < kPages; ++i) table.push_back((i * 7 + 3) % kPages);
    for (int64_t i = 0; i < s.head_dim / 2; ++i) {
      inv_freq.push_back(static_cast<float>(
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim))));
    }
    device_bias = to_device(bias);
    device_positions = to_device(positions);
    device_sequences = to_device(sequences);
    device_table = to_device(table);
    device_inv_freq = to_device(inv_freq);
  }
  [[nodiscard]] int64_t cache_size() const {
    return kPages * shape.num_kv_heads * shape.page_size * shape.head_dim;
  }
  [[nodiscard]] size_t cache_offset(int64_t row, int64_t head) const {
    const auto r = static_cast<size_t>(row);
    const int64_t page =
        table[static_cast<size_t>(sequences[r] * kStride + positions[r] / shape.page_size)];
    return static_cast<size_t>(
        ((page * shape.num_kv_heads + head) * shape.page_size + positions[r] % shape.page_size) *
        shape.head_dim);
  }
  /// Head `head` of [q; k; v], rotated if it is of q or k: [head_dim].
  [[nodiscard]] std::vector<Expected> head(const std::vector<Expected>& sums, int64_t row,
                                           int64_t head) const {
    const int64_t dim = shape.head_dim;
    std::vector<Expected> raw;
    for (int64_t d = 0; d < dim; ++d) {
      raw.push_back(sums[static_cast<size_t>(row * layer.n + head * dim + d)]);
      if (shape.bias) raw.back().value += to_double(bias[static_cast<size_t>(head * dim + d)]);
    }
    if (head >= shape.num_q_heads + shape.num_kv_heads) return raw;
    std::vector<Expected> rotated = raw;
    for (int64_t i = 0; i < dim / 2; ++i) {
      const bool split = shape.kind == RopeKind::kHalfSplit;
      const auto a = static_cast<size_t>(split ? i : 2 * i);
      const auto b = static_cast<size_t>(split ? i + dim / 2 : 2 * i + 1);
      const double angle = static_cast<double>(positions[static_cast<size_t>(row)]) *
                           static_cast<double>(inv_freq[static_cast<size_t>(i)]);
      const double c = std::cos(angle), s = std::sin(angle);
      const double tolerance = raw[a].tolerance + raw[b].tolerance +
                               0x1.0p-20 * (std::abs(raw[a].value) + std::abs(raw[b].value));
      rotated[a] = {raw[a].value * c - raw[b].value * s, tolerance};
      rotated[b] = {raw[a].value * s + raw[b].value * c, tolerance};
    }
    return rotated;
  }
};

TYPED_TEST(StreamLinear, QkvRotatesAndAppends) {
  using T = TypeParam;
  const QkvShape shapes[] = {{2, 1, 64, 128, 16, RopeKind::kHalfSplit, false},
                             {4, 2, 128, 256, 16, RopeKind::kInterleaved, false},
                             {3, 1, 16, 64, 8, RopeKind::kHalfSplit, true},
                             {3, 3, 48, 192, 32, RopeKind::kInterleaved, true},
                             {9, 3, 64, 576, 16, RopeKind::kHalfSplit, true}};
  for (const QkvShape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << shape.num_q_heads << " heads of " << shape.head_dim);
    const QkvCase<T> c(shape);
    const auto sums = c.layer.sums();
    const int64_t q_columns = shape.num_q_heads * shape.head_dim;
    const auto before = random_values<T>(13, c.cache_size(), 0.0, 1.0);
    for (const StreamWeight<T>& w : this->variants(c.layer)) {
      for (const int64_t m : {1, 2, 8, 13, 16}) {
        const auto q = poisoned<T>(m * q_columns);
        const auto k_cache = to_device(before);
        const auto v_cache = to_device(before);
        const StreamQkvArgs<T> args{.input = c.layer.input(m),
                                    .w = &w,
                                    .bias = shape.bias ? c.device_bias.data() : nullptr,
                                    .q_out = q.data(),
                                    .kv = {.k = k_cache.data(),
                                           .v = v_cache.data(),
                                           .page_table = c.device_table.data(),
                                           .page_table_stride = QkvCase<T>::kStride,
                                           .page_size = shape.page_size,
                                           .num_kv_heads = shape.num_kv_heads,
                                           .head_dim = shape.head_dim},
                                    .num_q_heads = shape.num_q_heads,
                                    .positions = c.device_positions.data(),
                                    .row_sequences = c.device_sequences.data(),
                                    .inv_freq = c.device_inv_freq.data(),
                                    .rope_kind = shape.kind};
        ASSERT_TRUE(stream_qkv_supports(args).has_value());
        launch_stream_qkv(args, this->stream_.get());
        const auto got_q = to_host(q);
        auto got_k = to_host(k_cache);
        auto got_v = to_host(v_cache);
        for (int64_t row = 0; row < m; ++row) {
          for (int64_t h = 0; h < shape.num_q_heads + 2 * shape.num_kv_heads; ++h) {
            const auto want = c.head(sums, row, h);
            const bool is_q = h < shape.num_q_heads;
            if (!is_q && c.sequences[static_cast<size_t>(row)] < 0) continue;
            const bool is_k = h < shape.num_q_heads + shape.num_kv_heads;
            const int64_t kv_head = h - shape.num_q_heads - (is_k ? 0 : shape.num_kv_heads);
            const size_t offset = is_q ? static_cast<size_t>(row * q_columns + h * shape.head_dim)
                                       : c.cache_offset(row, kv_head);
            for (size_t d = 0; d < want.size(); ++d) {
              T got = is_q ? got_q[offset + d] : (is_k ? got_k : got_v)[offset + d];
              expect_near(got, want[d], at(m, row, h * shape.head_dim + static_cast<int64_t>(d)));
              if (!is_q) (is_k ? got_k : got_v)[offset + d] = before[offset + d];
            }
          }
        }
        EXPECT_TRUE(same_bits(got_k, before)) << "keys of other tokens were written, m " << m;
        EXPECT_TRUE(same_bits(got_v, before)) << "values of other tokens were written, m " << m;
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Each launch needs what the one before wrote; started early, they must give the same bits. With
// the longer rows, x streams through a few places.
TYPED_TEST(StreamLinear, OverlappedLaunchesGiveTheSameBits) {
  using T = TypeParam;
  constexpr int64_t kHidden = 512;
  const auto deviation = [](int64_t k) { return 1.0 / std::sqrt(static_cast<double>(k)); };
  const auto small = random_values<T>(21, kMaxStreamRows * kHidden, 0.0, 1.0);
  for (const int64_t intermediate : {2048, 14336}) {
    const Layer<T> up(2 * intermediate, kHidden, true, deviation(kHidden));
    const Layer<T> down(kHidden, intermediate, false, deviation(intermediate));
    for (const int64_t m : {1, 8, 16}) {
      SCOPED_TRACE(testing::Message() << "intermediate " << intermediate << " m " << m);
      std::vector<T> results[2];
      for (const LaunchOrder order : {LaunchOrder::kAfterPrevious, LaunchOrder::kOverlapPrevious}) {
        const auto x = to_device(small);
        const auto between = poisoned<T>(m * intermediate);
        const GraphExec graph = capture_graph(this->stream_.get(), [&](cudaStream_t stream) {
          for (int i = 0; i < 12; ++i) {
            launch_stream_gate_up(
                StreamGateUpArgs<T>{
                    .input = {.x = x.data(), .m = m, .norm = up.device_norm.data(), .eps = kEps},
                    .w = &up.weight,
                    .y = between.data(),
                    .order = i == 0 ? LaunchOrder::kAfterPrevious : order},
                stream);
            launch_stream_linear(StreamLinearArgs<T>{.input = {.x = between.data(), .m = m},
                                                     .w = &down.weight,
                                                     .y = x.data(),
                                                     .accumulate = i % 3 != 2,
                                                     .order = order},
                                 stream);
          }
        });
        TRIPTYCH_CUDA_CHECK(cudaGraphLaunch(graph.get(), this->stream_.get()));
        results[order == LaunchOrder::kOverlapPrevious ? 1 : 0] = to_host(x);
      }
      EXPECT_TRUE(same_bits(results[0], results[1]));
      EXPECT_FALSE(same_bits(results[0], small)) << "nothing was computed";
      EXPECT_TRUE(std::all_of(results[0].begin(), results[0].end(),
                              [](T v) { return std::isfinite(to_double(v)); }));
    }
  }
}

TYPED_TEST(StreamLinear, SaysWhatItCannotDo) {
  using T = TypeParam;
  const DeviceBuffer<T> memory(64 * 64);
  const auto reason = [](const auto& result) {
    return result.has_value() ? std::string("supported") : result.error().message;
  };
  EXPECT_NE(reason(make_stream_weight<T>(memory.data(), 8, 96)).find("64, not 96"),
            std::string::npos);
  EXPECT_NE(reason(make_stream_weight<T>(memory.data(), 12, 64)).find("8, not 12"),
            std::string::npos);
  EXPECT_NE(reason(make_stream_weight<T>(memory.data() + 1, 8, 64)).find("16 bytes"),
            std::string::npos);
  const StreamWeight<T> w = make_stream_weight<T>(memory.data(), 48, 64).value();
  StreamLinearArgs<T> linear{
      .input = {.x = memory.data(), .m = 1}, .w = &w, .y = memory.data() + 1024};
  EXPECT_EQ(reason(stream_linear_supports(linear)), "supported");
  linear.input.m = 17;
  EXPECT_NE(reason(stream_linear_supports(linear)).find("1 to 16, not 17"), std::string::npos);
  linear.input.m = 0;
  EXPECT_NE(reason(stream_linear_supports(linear)).find("not 0"), std::string::npos);
  StreamQkvArgs<T> qkv;
  qkv.input = linear.input;
  qkv.input.m = 1;
  qkv.w = &w;
  qkv.kv.head_dim = 24;
  EXPECT_NE(reason(stream_qkv_supports(qkv)).find("16, not 24"), std::string::npos);
  qkv.kv.head_dim = 16;
  qkv.kv.num_kv_heads = 1;
  qkv.num_q_heads = 2;
  EXPECT_NE(reason(stream_qkv_supports(qkv)).find("rows of w"), std::string::npos);
  qkv.num_q_heads = 1;
  EXPECT_NE(reason(stream_qkv_supports(qkv)).find("paged"), std::string::npos);
}

TEST(StreamLinearCost, WeightsOnce) {
  const KernelCost cost = stream_linear_cost(4, 48, 64, 24, 2);
  EXPECT_EQ(cost.bytes_read, (48 * 64 + 4 * 64) * 2);
  EXPECT_EQ(cost.bytes_written, 4 * 24 * 2);
  EXPECT_EQ(cost.flops, 2 * 4 * 48 * 64);
}

// Whatever k, m and the number of tiles: everything fits, two stages are in flight, x streams
// through three places or stays, and two blocks of one kernel do not fit a multiprocessor (the
// second would take work from another that has none).
TEST(StreamShape, FitsSharedMemory) {
  for (int64_t k = 64; k <= 65536; k += 64) {
    for (int64_t m = 1; m <= kMaxStreamRows; ++m) {
      for (const int64_t tiles : {1, 2, 3, 60}) {
        SCOPED_TRACE(testing::Message() << "k " << k << " m " << m << " tiles " << tiles);
        const StreamShape s = make_stream_shape(m, k, tiles);
        ASSERT_GT(s.shared_bytes, 114 << 10);
        ASSERT_LE(s.shared_bytes, stream_shape::kMaxShared);
        ASSERT_GE(s.stages, 2);
        ASSERT_EQ(s.x_stays, s.x_slots >= s.chunks);
        ASSERT_TRUE(s.x_stays ? s.together == 1 : s.x_slots >= 3);
        ASSERT_GE(int64_t{s.chunks} * kStreamChunkColumns, k);
        ASSERT_EQ(s.x % 128, 0);
        ASSERT_EQ(s.sums % 16, 0);
        ASSERT_EQ(s.ring_barriers % 8, 0);
      }
    }
  }
}

}  // namespace
}  // namespace triptych
