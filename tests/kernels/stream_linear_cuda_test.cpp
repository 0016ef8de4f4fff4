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
#include "tests/support/stream_layer.h"
#include "tests/support/stream_qkv_case.h"

namespace triptych {
namespace {

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
    if (layer.weight.tma) {
      all.push_back(layer.weight);
      all.back().tma = false;
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

TYPED_TEST(StreamLinear, SmallShapesEveryNumberOfRows) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{8, 64}, {16, 64}, {24, 128}, {40, 192}, {136, 256}, {264, 320}};
  for (const auto& [n, k] : shapes) {
    for (const bool normed : {false, true}) {
      SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "] normed " << normed);
      const Layer<T> layer(n, k, normed);
      const auto want = layer.sums();
      for (const StreamWeight<T>& w : this->variants(layer)) {
        for (int64_t m = 1; m <= layer.max_rows(w); ++m) {
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
      for (const int64_t m : {1, 8, 16}) {
        if (m <= layer.max_rows(w)) expect_sums(this->run_linear(layer, w, m), want, m, n);
      }
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
          if (m <= layer.max_rows(w)) expect_sums(this->run_linear(layer, w, m), want, m, n);
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
      if (m > layer.max_rows(w)) continue;
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
  const auto residual = random_numbers<T>(7, kMaxStreamRows * layer.n, 0.0, 20.0);
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
      const auto row_of = [n](const std::vector<T>& y, int64_t r) {
        return std::vector<T>(y.begin() + r * n, y.begin() + (r + 1) * n);
      };
      const bool takes_more = layer.max_rows(w) > 8;
      const auto five = this->run_linear(layer, w, 5);
      const auto eight = this->run_linear(layer, w, 8);
      const auto sixteen = takes_more ? this->run_linear(layer, w, 16) : std::vector<T>();
      for (int64_t row = 0; row < 8; ++row) {
        SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "] row " << row);
        EXPECT_TRUE(same_bits(this->run_linear(layer, w, 1, row), row_of(eight, row))) << "alone";
        EXPECT_TRUE(row >= 5 || same_bits(row_of(five, row), row_of(eight, row))) << "among five";
        if (!takes_more) continue;
        const auto nine = this->run_linear(layer, w, 9, row);
        EXPECT_TRUE(same_bits(row_of(nine, 8), row_of(sixteen, row + 8))) << "among nine";
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
    const int64_t m = layer.max_rows(w);
    expect_sums(this->run_linear(layer, w, m), want, m, layer.n);
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
        if (m > layer.max_rows(w)) continue;
        const auto y = poisoned<T>(m * columns);
        launch_stream_gate_up(StreamGateUpArgs<T>{.input = layer.input(m), .w = &w, .y = y.data()},
                              this->stream_.get());
        const auto got = to_host(y);
        for (int64_t i = 0; i < m * columns; ++i) {
          const auto row = static_cast<size_t>(i / columns * n + i % columns);
          const Expected want = silu_product(sums[row], sums[row + static_cast<size_t>(columns)]);
          expect_near(got[static_cast<size_t>(i)], want, at(m, i / columns, i % columns));
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

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
    const auto before = random_numbers<T>(13, c.cache_size(), 0.0, 1.0);
    for (const StreamWeight<T>& w : this->variants(c.layer)) {
      for (const int64_t m : {1, 2, 8, 13, 16}) {
        if (m > c.layer.max_rows(w)) continue;
        c.run_and_check(w, m, sums, before, this->stream_.get());
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
  const auto small = random_numbers<T>(21, kMaxStreamRows * kHidden, 0.0, 1.0);
  for (const int64_t intermediate : {2048, 14336}) {
    const Layer<T> up(2 * intermediate, kHidden, true, deviation(kHidden));
    const Layer<T> down(kHidden, intermediate, false, deviation(intermediate));
    for (const int64_t m : {1, 8, 16}) {
      if (m > up.max_rows(up.weight)) continue;
      SCOPED_TRACE(testing::Message() << "intermediate " << intermediate << " m " << m);
      std::vector<T> results[2];
      for (const LaunchOrder order : {LaunchOrder::kAfterPrevious, LaunchOrder::kOverlapPrevious}) {
        const auto x = to_device(small);
        const auto between = poisoned<T>(m * intermediate);
        const GraphExec graph = capture_graph(this->stream_.get(), [&](cudaStream_t stream) {
          for (int i = 0; i < 12; ++i) {
            launch_stream_gate_up(
                StreamGateUpArgs<T>{.input = {.x = x.data(),
                                              .m = m,
                                              .norm = up.device_norm.data(),
                                              .eps = kStreamEps},
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
  linear.input.m = 33;
  EXPECT_NE(reason(stream_linear_supports(linear)).find("1 to 32, not 33"), std::string::npos);
  StreamWeight<T> variant = w;
  linear.w = &variant;
  variant.tma = true;
  linear.input.m = 9;
  EXPECT_EQ(reason(stream_linear_supports(linear)), "supported");
  linear.input.norm = memory.data();
  EXPECT_NE(reason(stream_linear_supports(linear)).find("8 with a norm on sm_90, not 9"),
            std::string::npos);
  variant.tma = false;
  linear.input.m = 16;
  EXPECT_EQ(reason(stream_linear_supports(linear)), "supported");
  linear.input.m = 17;
  linear.input.norm = nullptr;
  EXPECT_NE(reason(stream_linear_supports(linear)).find("16 on devices other than sm_90, not 17"),
            std::string::npos);
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
    for (int64_t m = 1; m <= kMaxNarrowStreamRows; ++m) {
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
