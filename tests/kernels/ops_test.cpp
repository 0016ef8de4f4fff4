// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/linear.h"
#include "tests/support/random_weights.h"
#include "tests/support/simd_targets.h"

namespace triptych::cpu {
namespace {

constexpr double kEps = 0x1p-24;  // one f32 rounding, relative
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kCounts[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100, 576};

TEST(Add, IsExactAndMayAlias) {
  for_each_simd_target([] {
    for (const int64_t count : kCounts) {
      const auto a = random_floats(1, count);
      const auto b = random_floats(2, count);
      std::vector<float> want(a.size());
      for (size_t i = 0; i < a.size(); ++i) want[i] = a[i] + b[i];
      auto out = a;
      add(out.data(), b.data(), out.data(), count);
      EXPECT_EQ(out, want);
      out = b;
      add(a.data(), out.data(), out.data(), count);
      EXPECT_EQ(out, want);
    }
  });
}

// exp has 1 ulp, the sum, the quotient and the product half of one each: 4 ulp = 8 kEps.
TEST(Swiglu, MatchesDoubleOverTheWholeRange) {
  for_each_simd_target([] {
    for (const int64_t count : kCounts) {
      auto gate = random_floats(3, count);
      const auto up = random_floats(4, count);
      for (float& g : gate) g *= 30.0f;
      auto out = gate;
      swiglu(out.data(), up.data(), out.data(), count);
      for (size_t i = 0; i < out.size(); ++i) {
        const double g = gate[i];
        const double want = g / (1.0 + std::exp(-g)) * up[i];
        ASSERT_NEAR(out[i], want, 8 * kEps * std::abs(want) + 1e-35) << "gate " << g;
      }
    }
  });
}

TEST(Swiglu, ExtremesStayFinite) {
  const std::vector<float> gate = {0.0f, -0.0f, 500.0f, -500.0f, -88.0f, -1e30f, kNan};
  const std::vector<float> up(gate.size(), 1.0f);
  for_each_simd_target([&] {
    std::vector<float> out(gate.size());
    swiglu(gate.data(), up.data(), out.data(), static_cast<int64_t>(gate.size()));
    EXPECT_EQ(out[0], 0.0f);
    EXPECT_EQ(out[1], 0.0f);
    EXPECT_EQ(out[2], 500.0f);
    EXPECT_NEAR(out[3], 0.0f, 1e-30f);
    EXPECT_NEAR(out[4], 0.0f, 1e-30f);
    EXPECT_NEAR(out[5], 0.0f, 1e-6f);  // silu(x) is x * exp(-88) there instead of 0
    EXPECT_TRUE(std::isnan(out[6]));
  });
}

void check_rms_norm(int64_t tokens, int64_t size, bool with_residual, ThreadPool& pool) {
  const auto x = random_floats(5, tokens * size);
  const auto residual = random_floats(6, tokens * size);
  const auto weight = random_floats(7, size);
  constexpr float kNormEps = 1e-5f;
  auto y = x;  // in place
  auto sum = residual;
  rms_norm({y.data(), with_residual ? sum.data() : nullptr, weight.data(), y.data(), tokens, size,
            kNormEps},
           pool);
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<float> v(static_cast<size_t>(size));
    double squares = 0.0;
    for (int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<size_t>(t * size + i);
      v[static_cast<size_t>(i)] = with_residual ? residual[at] + x[at] : x[at];
      ASSERT_EQ(sum[at], with_residual ? v[static_cast<size_t>(i)] : residual[at]);
      squares += std::pow(v[static_cast<size_t>(i)], 2);
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + kNormEps);
    for (int64_t i = 0; i < size; ++i) {
      const double want = v[static_cast<size_t>(i)] * scale * weight[static_cast<size_t>(i)];
      // The sum of squares has no cancellation: its relative error is at most the number of
      // additions a lane makes, size / 4 with the narrowest vectors; the root halves it.
      const double k = static_cast<double>(size) / 8 + 6;
      ASSERT_NEAR(y[static_cast<size_t>(t * size + i)], want, k * kEps * std::abs(want));
    }
  }
}

TEST(RmsNorm, MatchesDouble) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    for_each_simd_target([&] {
      for (const int64_t size : kCounts) {
        check_rms_norm(1, size, false, pool);
        check_rms_norm(3, size, true, pool);
      }
      check_rms_norm(70, 576, true, pool);
    });
  }
}

TEST(RmsNorm, ScalingTheInputChangesNothingWithoutEpsilon) {
  ThreadPool pool(1);
  const auto x = random_floats(8, 576);
  auto scaled = x;
  for (float& v : scaled) v *= 8.0f;  // a power of two: no rounding
  const std::vector<float> weight(576, 1.0f);
  std::vector<float> a(576), b(576);
  rms_norm({x.data(), nullptr, weight.data(), a.data(), 1, 576, 0.0f}, pool);
  rms_norm({scaled.data(), nullptr, weight.data(), b.data(), 1, 576, 0.0f}, pool);
  EXPECT_EQ(a, b);
}

// The numbers of rms_norm on rows of the same size, whatever the number of heads.
TEST(HeadNorm, IsTheNormOfEachHead) {
  ThreadPool pool(1);
  for_each_simd_target([&] {
    for (const int64_t size : {2, 16, 20, 128}) {
      constexpr int64_t kHeads = 7;
      auto x = random_floats(8, kHeads * size);
      const auto weight = random_floats(9, size);
      std::vector<float> expected(x.size());
      rms_norm({x.data(), nullptr, weight.data(), expected.data(), kHeads, size, 1e-6f}, pool);
      head_norm(x.data(), weight.data(), kHeads, size, 1e-6f);
      EXPECT_EQ(x, expected) << size;
    }
  });
}

std::vector<float> rotate(std::vector<float> x, const std::vector<int32_t>& positions,
                          int64_t heads, int64_t dim, RopeKind kind) {
  const auto inv_freq = rope_inverse_frequencies(10000.0, dim, {});
  rope({x.data(), heads * dim + 2, positions, heads, dim, inv_freq, kind});
  return x;
}

// cos and sin are within 3 ulp and the angle is rounded once (half an ulp of up to pi): 5e-7 of the
// pair's length. Angles grow up to 1e6 here, so this also checks the reduction.
TEST(Rope, MatchesDouble) {
  const std::vector<int32_t> positions = {0, 1, 2, 17, 511, 8191, 131071, 1000000};
  for_each_simd_target([&] {
    for (const int64_t dim : {2, 6, 8, 16, 40, 64, 128}) {
      constexpr int64_t kHeads = 3;
      const auto inv_freq = rope_inverse_frequencies(10000.0, dim, {});
      const int64_t stride = kHeads * dim + 2;
      const auto x = random_floats(9, static_cast<int64_t>(positions.size()) * stride);
      for (const RopeKind kind : {RopeKind::kHalfSplit, RopeKind::kInterleaved}) {
        const auto y = rotate(x, positions, kHeads, dim, kind);
        for (size_t t = 0; t < positions.size(); ++t) {
          for (int64_t i = 0; i < kHeads * dim / 2; ++i) {
            const int64_t pair = i % (dim / 2);
            const int64_t head = static_cast<int64_t>(t) * stride + i / (dim / 2) * dim;
            const bool split = kind == RopeKind::kHalfSplit;
            const auto a = static_cast<size_t>(head + (split ? pair : 2 * pair));
            const auto b = split ? a + static_cast<size_t>(dim / 2) : a + 1;
            const double angle = static_cast<double>(positions[t]) *
                                 static_cast<double>(inv_freq[static_cast<size_t>(pair)]);
            const double c = std::cos(angle), s = std::sin(angle);
            const double tolerance = 5e-7 * std::hypot(x[a], x[b]);
            ASSERT_NEAR(y[a], x[a] * c - x[b] * s, tolerance) << positions[t] << " dim " << dim;
            ASSERT_NEAR(y[b], x[b] * c + x[a] * s, tolerance) << positions[t] << " dim " << dim;
          }
          // Between two rows of heads nothing is touched.
          for (int64_t gap = kHeads * dim; gap < stride; ++gap) {
            const auto at = static_cast<size_t>(static_cast<int64_t>(t) * stride + gap);
            ASSERT_EQ(y[at], x[at]);
          }
        }
      }
    }
  });
}

TEST(Rope, PositionZeroIsTheIdentity) {
  const auto x = random_floats(10, 2 * 64 + 2);
  for_each_simd_target([&] {
    EXPECT_EQ(rotate(x, {0}, 2, 64, RopeKind::kHalfSplit), x);
    EXPECT_EQ(rotate(x, {0}, 2, 64, RopeKind::kInterleaved), x);
  });
}

TEST(Rope, HalfSplitIsThePermutedInterleaved) {
  constexpr int64_t kDim = 64;
  const auto x = random_floats(11, kDim + 2);
  std::vector<float> permuted(x.size());
  for (size_t i = 0; i < kDim / 2; ++i) {
    permuted[2 * i] = x[i];
    permuted[2 * i + 1] = x[i + kDim / 2];
  }
  for_each_simd_target([&] {
    const auto split = rotate(x, {77}, 1, kDim, RopeKind::kHalfSplit);
    const auto interleaved = rotate(permuted, {77}, 1, kDim, RopeKind::kInterleaved);
    for (size_t i = 0; i < kDim / 2; ++i) {
      EXPECT_FLOAT_EQ(split[i], interleaved[2 * i]);
      EXPECT_FLOAT_EQ(split[i + kDim / 2], interleaved[2 * i + 1]);
    }
  });
}

// The dot product of rotated q and k depends only on the distance of their positions.
TEST(Rope, DotProductsDependOnTheDistanceOnly) {
  const auto q = random_floats(12, 64 + 2);
  const auto k = random_floats(13, 64 + 2);
  const auto dot = [&](int32_t at_q, int32_t at_k) {
    const auto a = rotate(q, {at_q}, 1, 64, RopeKind::kHalfSplit);
    const auto b = rotate(k, {at_k}, 1, 64, RopeKind::kHalfSplit);
    double sum = 0.0;
    for (size_t i = 0; i < 64; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  };
  for (const int32_t shift : {1, 100, 5000}) {
    // 64 products of about 1, each with the rotation's error of 1e-6 at most.
    EXPECT_NEAR(dot(9 + shift, 4 + shift), dot(9, 4), 64 * 1e-6);
  }
}

TEST(ToHalf, EqualsTheScalarConversionForAllKindsOfValues) {
  for_each_simd_target([] {
    for (const int64_t count : kCounts) {
      std::vector<float> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::bit_cast<float>(static_cast<uint32_t>(random_bits(14, i)));
        if (std::isnan(values[i])) values[i] = kInfinity;
        if (i % 2 == 0) values[i] = std::ldexp(values[i], -std::ilogb(values[i]) % 20);
        if (i % 3 == 0) values[i] = static_cast<float>(random_normal(15, i));
      }
      std::vector<Half> out(values.size() + 1, Half{0xABCD});
      to_half(values.data(), out.data(), count);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(out[i].bits, half_from_float(values[i]).bits) << values[i];
      }
      EXPECT_EQ(out.back().bits, 0xABCD);
    }
  });
}

TEST(Argmax, FindsTheFirstOfTheLargest) {
  for_each_simd_target([] {
    for (const int64_t count : kCounts) {
      auto values = random_floats(16, count);
      const auto want = std::max_element(values.begin(), values.end()) - values.begin();
      EXPECT_EQ(argmax(values.data(), count), want);
      values.push_back(values[static_cast<size_t>(want)]);  // a tie, later
      EXPECT_EQ(argmax(values.data(), count + 1), want);
      for (int64_t i = 0; i < count; ++i) {
        std::fill(values.begin(), values.end(), -1.0f);
        values[static_cast<size_t>(i)] = -0.5f;
        ASSERT_EQ(argmax(values.data(), count), i);
      }
    }
  });
}

TEST(Argmax, NanNeverWins) {
  for_each_simd_target([] {
    for (const size_t at : {0u, 5u, 20u, 39u}) {
      std::vector<float> values(40, kNan);
      values[at] = -kInfinity;
      EXPECT_EQ(argmax(values.data(), 40), static_cast<int32_t>(at));
      values[at] = kInfinity;
      EXPECT_EQ(argmax(values.data(), 40), static_cast<int32_t>(at));
    }
    const std::vector<float> nothing(40, kNan);
    EXPECT_EQ(argmax(nothing.data(), 40), 0);
  });
}

TEST(LogSumExp, IsThatOfDoublePrecision) {
  for_each_simd_target([] {
    for (const int64_t count : kCounts) {
      auto values = random_floats(18, count);
      for (float& value : values) value *= 30;  // from what vanishes to what is nearly all
      values[static_cast<size_t>(count) / 2] = -kInfinity;
      values[0] = 88.5f;
      double sum = 0;
      for (const float value : values) sum += std::exp(static_cast<double>(value) - 88.5);
      // Every term is within 1 ulp, and the order of the sum is another.
      EXPECT_NEAR(log_sum_exp(values.data(), count), 88.5 + std::log(sum), 1e-12) << count;
    }
  });
}

TEST(LogSumExp, NanIsNotHidden) {
  for_each_simd_target([] {
    for (const size_t at : {0u, 5u, 20u, 38u}) {
      std::vector<float> values(39, 1.0f);
      values[at] = kNan;
      EXPECT_TRUE(std::isnan(log_sum_exp(values.data(), 39))) << at;
    }
  });
}

TEST(Embed, CopiesRowsOfEveryType) {
  for (const DTypeInfo& info : kDTypes) {
    const RandomWeights table(17, info.dtype, 5, 256);
    std::vector<float> out(3 * 256), row(256);
    embed(table.view(), std::vector<int32_t>{4, 0, 4}, out.data());
    const int64_t rows[] = {4, 0, 4};
    for (int64_t i = 0; i < 3; ++i) {
      dequantize_row(table.view(), rows[i], row.data());
      EXPECT_TRUE(std::equal(row.begin(), row.end(), out.begin() + i * 256)) << info.name;
    }
  }
}

TEST(OpsDeathTest, PreconditionsAreChecked) {
  const RandomWeights table(18, DType::kF32, 5, 8);
  std::vector<float> out(8);
  EXPECT_DEATH(embed(table.view(), std::vector<int32_t>{5}, out.data()), "outside the table");
  EXPECT_DEATH(embed(table.view(), std::vector<int32_t>{-1}, out.data()), "outside the table");
  EXPECT_DEATH(static_cast<void>(argmax(out.data(), 0)), "argmax of nothing");
  EXPECT_DEATH(static_cast<void>(log_sum_exp(out.data(), 0)), "log_sum_exp of nothing");
}

}  // namespace
}  // namespace triptych::cpu
