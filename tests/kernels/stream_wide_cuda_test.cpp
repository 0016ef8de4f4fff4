// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Linear layers of up to 32 rows of input as it is. Those with a norm are in
// stream_linear_cuda_test.cpp.
#include "kernels/cuda/stream_wide.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/common/cuda_handles.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/stream_linear.h"
#include "kernels/cuda/stream_maps.h"
#include "kernels/cuda/stream_wide_shape.h"
#include "tests/support/gpu_test.h"
#include "tests/support/stream_layer.h"
#include "tests/support/stream_qkv_case.h"

namespace triptych {
namespace {

constexpr int64_t kRows = kMaxWideStreamRows;
/// The fewest and the most, and some between.
constexpr int64_t kSomeRows[] = {9, 16, 17, 24, 31, 32};

template <class T>
class StreamWide : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const DeviceBuffer<T> memory(64 * 8);
    if (!make_stream_weight<T>(memory.data(), 8, 64).value().tma) {
      GTEST_SKIP() << "these kernels are for sm_90";
    }
    stream_ = make_stream();
  }
  std::vector<T> run_linear(const Layer<T>& layer, int64_t m, int64_t first_row = 0) {
    const auto y = poisoned<T>(m * layer.n);
    const StreamLinearArgs<T> args{
        .input = layer.input(m, first_row), .w = &layer.weight, .y = y.data()};
    EXPECT_TRUE(stream_linear_supports(args).has_value());
    launch_stream_linear(args, stream_.get());
    return to_host(y);
  }
  Stream stream_;
};
using Types = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(StreamWide, Types);

TYPED_TEST(StreamWide, EveryNumberOfRows) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{8, 64}, {24, 128}, {136, 192}, {264, 320}, {520, 1088}};
  for (const auto& [n, k] : shapes) {
    SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "]");
    const Layer<T> layer(n, k, false, 1.0, kRows);
    const auto want = layer.sums();
    for (int64_t m = kMaxNarrowStreamRows + 1; m <= kRows; ++m) {
      expect_sums(this->run_linear(layer, m), want, m, n);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TYPED_TEST(StreamWide, LongRowsAndManyTiles) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{264, 8192}, {200, 14336}, {72, 24576}, {40008, 64}, {9000, 192}};
  for (const auto& [n, k] : shapes) {
    SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "]");
    const Layer<T> layer(n, k, false, 1.0, kRows);
    const auto want = layer.sums();
    for (const int64_t m : kSomeRows) {
      expect_sums(this->run_linear(layer, m), want, m, n);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TYPED_TEST(StreamWide, AddsToTheResidual) {
  using T = TypeParam;
  const Layer<T> layer(200, 320, false, 1.0, kRows);
  const auto sums = layer.sums();
  const auto residual = random_numbers<T>(7, kRows * layer.n, 0.0, 20.0);
  auto want = sums;
  for (size_t i = 0; i < want.size(); ++i) want[i].value += to_double(residual[i]);
  for (const int64_t m : kSomeRows) {
    const auto y = to_device(residual);
    launch_stream_linear(
        StreamLinearArgs<T>{
            .input = layer.input(m), .w = &layer.weight, .y = y.data(), .accumulate = true},
        this->stream_.get());
    const auto got = to_host(y);
    expect_sums(got, want, m, layer.n);
    for (size_t i = static_cast<size_t>(m * layer.n); i < got.size(); ++i) {
      ASSERT_EQ(to_double(got[i]), to_double(residual[i])) << "a row past m was written";
    }
  }
}

TYPED_TEST(StreamWide, ARowDoesNotDependOnTheOthers) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{136, 320}, {2200, 576}, {264, 4096}, {200, 14336}};
  constexpr int64_t kFew = kMaxNarrowStreamRows + 1;
  for (const auto& [n, k] : shapes) {
    const Layer<T> layer(n, k, false, 1.0, kRows);
    const auto all = this->run_linear(layer, kRows);
    const auto first = this->run_linear(layer, kFew);
    const auto last = this->run_linear(layer, kFew, kRows - kFew);
    const auto rows = [n](const std::vector<T>& y, int64_t begin, int64_t end) {
      return std::vector<T>(y.begin() + begin * n, y.begin() + end * n);
    };
    EXPECT_TRUE(same_bits(first, rows(all, 0, kFew))) << "[" << n << ", " << k << "]";
    EXPECT_TRUE(same_bits(last, rows(all, kRows - kFew, kRows))) << "[" << n << ", " << k << "]";
  }
}

TYPED_TEST(StreamWide, GateUp) {
  using T = TypeParam;
  const int64_t shapes[][2] = {{8, 64}, {24, 128}, {208, 256}, {1560, 576}, {5640, 192}};
  for (const auto& [n, k] : shapes) {
    SCOPED_TRACE(testing::Message() << "[" << n << ", " << k << "]");
    const int64_t columns = n / 2;
    const Layer<T> layer(n, k, false, 1.0 / std::sqrt(static_cast<double>(k)), kRows);
    const auto sums = layer.sums();
    for (const int64_t m : kSomeRows) {
      const auto y = poisoned<T>(m * columns);
      const StreamGateUpArgs<T> args{.input = layer.input(m), .w = &layer.weight, .y = y.data()};
      ASSERT_TRUE(stream_gate_up_supports(args).has_value());
      launch_stream_gate_up(args, this->stream_.get());
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

TYPED_TEST(StreamWide, QkvRotatesAndAppends) {
  using T = TypeParam;
  const QkvShape shapes[] = {{2, 1, 64, 128, 16, RopeKind::kHalfSplit, false},
                             {4, 2, 128, 256, 16, RopeKind::kInterleaved, false},
                             {5, 1, 128, 64, 16, RopeKind::kHalfSplit, true},
                             {3, 1, 16, 64, 16, RopeKind::kHalfSplit, true},
                             {2, 2, 48, 192, 16, RopeKind::kHalfSplit, false},
                             {3, 3, 48, 192, 32, RopeKind::kInterleaved, true},
                             {9, 3, 64, 576, 16, RopeKind::kHalfSplit, true}};
  for (const QkvShape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << shape.num_q_heads << " heads of " << shape.head_dim);
    const QkvCase<T> c(shape, false, kRows);
    const auto sums = c.layer.sums();
    const auto before = random_numbers<T>(13, c.cache_size(), 0.0, 1.0);
    for (const int64_t m : kSomeRows) {
      c.run_and_check(c.layer.weight, m, sums, before, this->stream_.get());
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Each launch needs what the one before wrote; started early, they must give the same bits.
TYPED_TEST(StreamWide, OverlappedLaunchesGiveTheSameBits) {
  using T = TypeParam;
  constexpr int64_t kHidden = 512;
  const auto deviation = [](int64_t k) { return 1.0 / std::sqrt(static_cast<double>(k)); };
  const auto small = random_numbers<T>(21, kRows * kHidden, 0.0, 1.0);
  for (const int64_t intermediate : {2048, 14336}) {
    const Layer<T> up(2 * intermediate, kHidden, false, deviation(kHidden));
    const Layer<T> down(kHidden, intermediate, false, deviation(intermediate));
    for (const int64_t m : {9, 32}) {
      SCOPED_TRACE(testing::Message() << "intermediate " << intermediate << " m " << m);
      std::vector<T> results[2];
      for (const LaunchOrder order : {LaunchOrder::kAfterPrevious, LaunchOrder::kOverlapPrevious}) {
        const auto x = to_device(small);
        const auto between = poisoned<T>(m * intermediate);
        const GraphExec graph = capture_graph(this->stream_.get(), [&](cudaStream_t stream) {
          for (int i = 0; i < 12; ++i) {
            launch_stream_gate_up(
                StreamGateUpArgs<T>{.input = {.x = x.data(), .m = m},
                                    .w = &up.weight,
                                    .y = between.data(),
                                    .order = i == 0 ? LaunchOrder::kAfterPrevious : order},
                stream);
            launch_stream_linear(StreamLinearArgs<T>{.input = {.x = between.data(), .m = m},
                                                     .w = &down.weight,
                                                     .y = x.data(),
                                                     .accumulate = i % 3 == 0,
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

TYPED_TEST(StreamWide, SaysWhatItCannotDo) {
  using T = TypeParam;
  const DeviceBuffer<T> memory(144 * 64);
  const auto reason = [](const auto& result) {
    return result.has_value() ? std::string("supported") : result.error().message;
  };
  const StreamWeight<T> w = make_stream_weight<T>(memory.data(), 64, 64).value();
  StreamLinearArgs<T> args{
      .input = {.x = memory.data(), .m = 32}, .w = &w, .y = memory.data() + 64 * 64};
  EXPECT_EQ(reason(stream_linear_supports(args)), "supported");
  args.input.m = 33;
  EXPECT_NE(reason(stream_linear_supports(args)).find("1 to 32, not 33"), std::string::npos);
  EXPECT_EQ(reason(make_matrix_map(memory.data(), 8, 64, 8, 1)), "supported");
  EXPECT_NE(
      reason(make_matrix_map(memory.data() + 1, 8, 64, 8, 1)).find("no tensor map of [8, 64]"),
      std::string::npos);
}

void expect_cover(const WideTask& task, const int (&clusters)[kWideRankChoices]) {
  SCOPED_TRACE(testing::Message() << "[" << task.n << ", " << task.k << "]");
  const WideShape s = make_wide_shape(task, clusters);
  ASSERT_GE(s.ring_stages, 3);
  ASSERT_LE(s.ring_stages, kMaxWideStages);
  ASSERT_LE(s.shared_bytes, wide_shape::kMaxShared);
  ASSERT_EQ(s.stage_bytes % 1024, 0);
  ASSERT_GE(s.ranks * s.stages_per_rank * s.pieces * 64, task.k);
  ASSERT_LE(s.clusters, s.tiles.count);
  ASSERT_LE(s.clusters, clusters[s.ranks / 2]);
  ASSERT_GE(int64_t{s.tiles.count} * kWideGroups * s.box_rows, task.n);
}
// Whatever n and k: the tiles cover w, everything fits, and three stages are in flight.
TEST(WideShape, CoversTheMatrix) {
  const int clusters[kWideRankChoices] = {132, 66, 30};
  for (int64_t n = 8; n <= 60000; n = n * 9 / 8 / 8 * 8 + 8) {
    for (int64_t k = 64; k <= 32768; k += k < 1024 ? 64 : 1792) {
      for (const bool split : {false, true}) {
        const WideTask task = {n, k, split, n / 2};
        expect_cover(task, clusters);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}
TEST(WideShape, PairsOfAHeadShareATile) {
  const int clusters[kWideRankChoices] = {132, 66, 30};
  for (const int64_t head_dim : {16, 32, 48, 64, 96, 128, 256}) {
    const WideShape s = make_wide_shape({40 * head_dim, 1024, true, head_dim / 2}, clusters);
    EXPECT_EQ(head_dim / 2 % s.tiles.step, 0);
    EXPECT_EQ(s.tiles.count * s.tiles.step * 2, 40 * head_dim);
  }
}
TEST(WideShape, BlocksGetTheSameShare) {
  const int clusters[kWideRankChoices] = {132, 66, 30};
  const WideShape gate_up = make_wide_shape({28672, 4096, true, 14336}, clusters);
  EXPECT_LE(gate_up.tiles.count, 2 * gate_up.clusters);
  EXPECT_GE(gate_up.tiles.count, 2 * gate_up.clusters - 8);
  const WideShape down = make_wide_shape({4096, 14336, false, 0}, clusters);
  EXPECT_EQ(down.tiles.count, down.clusters);
  EXPECT_GE(down.clusters * down.ranks, 120);
}

}  // namespace
}  // namespace triptych
