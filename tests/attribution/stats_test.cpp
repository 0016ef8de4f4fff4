// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attribution/bootstrap.h"
#include "base/random.h"

namespace triptych {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> normal_values(uint64_t seed, size_t count, double center, double spread) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) values.push_back(center + spread * random_normal(seed, i));
  return values;
}

double mean_of(std::span<const double> values, std::span<const int64_t> blocks) {
  double sum = 0;
  for (const int64_t b : blocks) sum += values[static_cast<size_t>(b)];
  return sum / static_cast<double>(blocks.size());
}

TEST(Stats, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
}

TEST(Stats, QuantileIsHyndmanFanType7) {
  const std::vector<double> values = {40, 10, 30, 20};
  EXPECT_EQ(quantile(values, 0), 10);
  EXPECT_EQ(quantile(values, 1), 40);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 17.5);  // R: quantile(c(10,20,30,40), 0.25) = 17.5
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 37);     // R: 37
  EXPECT_EQ(quantile(std::vector<double>{5}, 0.3), 5);
}

TEST(Stats, QuantileLaws) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const size_t count = 1 + random_bits(seed, 1000) % 30;
    const std::vector<double> values = normal_values(seed, count, 0, 1);
    EXPECT_DOUBLE_EQ(quantile(values, 0.5), median(values));
    double previous = -kInfinity;
    for (double q = 0; q <= 1; q += 0.0625) {
      EXPECT_GE(quantile(values, q), previous);
      previous = quantile(values, q);
    }
  }
}

TEST(Bootstrap, TailsAreThoseOfStudent) {
  // scipy 1.17.1: norm.cdf(sqrt(n / (n - 1)) * t.ppf((1 - confidence) / 2, n - 1)). The tolerance
  // is the rounding of the quantile, which a far tail magnifies.
  const auto expect_tail = [](int64_t blocks, double confidence, double expected) {
    EXPECT_NEAR(expanded_tail(blocks, confidence) / expected, 1, 1e-12) << blocks;
  };
  expect_tail(5, 0.95, 0.0009541005518824907);
  expect_tail(8, 0.95, 0.0057375205170298775);
  expect_tail(10, 0.95, 0.008550639024406366);
  expect_tail(40, 0.95, 0.020257536362843834);
  expect_tail(1000, 0.95, 0.024804305905564303);
  expect_tail(10, 0.5, 0.22942731473253603);
  expect_tail(10, 0.99, 0.00030669054793700727);
  EXPECT_LT(expanded_tail(2, 0.95), 1e-70);
}

TEST(Bootstrap, MoreBlocksNeedLessExpansion) {
  double previous = 0;
  for (int64_t blocks = 2; blocks < 200; ++blocks) {
    const double tail = expanded_tail(blocks, 0.95);
    EXPECT_GT(tail, previous);
    previous = tail;
  }
  EXPECT_LT(previous, 0.025);
}

TEST(Bootstrap, MatchesScipyPercentile) {
  // scipy.stats.bootstrap(method='percentile') at the level of TailsAreThoseOfStudent, mean of 20
  // runs of 100000 resamples; their standard deviation is 0.07 (lo) and 0.25 (hi), ours with 100000
  // the same, so 5 of sqrt(2) times that.
  const std::vector<double> values = {412, 398, 455, 401, 430, 529, 407, 418, 396, 441};
  const BootstrapOptions options{.resamples = 100000, .seed = 7};
  const Interval of_mean = mean_interval(values, options);
  EXPECT_NEAR(of_mean.lo, 406.26, 0.5);
  EXPECT_NEAR(of_mean.hi, 461.86, 1.8);
  const Interval of_median = median_interval(values, options);
  EXPECT_EQ(of_median.lo, 399.5);
  EXPECT_EQ(of_median.hi, 448);
}

TEST(Bootstrap, MeanIntervalIsTheBootstrapIntervalOfTheMean) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const std::vector<double> values = normal_values(seed, 9, 100, 5);
    const BootstrapOptions options{.resamples = 500, .seed = seed};
    const Interval fast = mean_interval(values, options);
    const Interval general = bootstrap_interval(
        9, [&](std::span<const int64_t> blocks) { return mean_of(values, blocks); }, options);
    EXPECT_NEAR(fast.lo, general.lo, 1e-11);  // the sums differ in order of a left-out block
    EXPECT_NEAR(fast.hi, general.hi, 1e-11);
  }
}

TEST(Bootstrap, SameSeedSameInterval) {
  const std::vector<double> values = normal_values(1, 10, 0, 1);
  const Interval first = mean_interval(values, {.seed = 5});
  const Interval second = mean_interval(values, {.seed = 5});
  const Interval other = mean_interval(values, {.seed = 6});
  EXPECT_EQ(first.lo, second.lo);
  EXPECT_EQ(first.hi, second.hi);
  EXPECT_NE(first.lo, other.lo);
}

TEST(Bootstrap, EqualValuesGiveZeroWidth) {
  const std::vector<double> values(8, 0.1);
  const Interval of_median = median_interval(values, {});
  EXPECT_EQ(of_median.lo, 0.1);
  EXPECT_EQ(of_median.hi, 0.1);
  const Interval of_mean = mean_interval(values, {});
  EXPECT_EQ(of_mean.lo, of_mean.hi);
  EXPECT_EQ(of_mean.lo, mean(values));
}

TEST(Bootstrap, FewBlocksSayNothing) {
  for (size_t count = 1; count < kMinBlocks; ++count) {
    const std::vector<double> values = normal_values(2, count, 10, 1);
    for (const Interval& i : {mean_interval(values, {}), median_interval(values, {})}) {
      EXPECT_EQ(i.lo, -kInfinity);
      EXPECT_EQ(i.hi, kInfinity);
    }
  }
  const std::vector<double> enough = normal_values(2, kMinBlocks, 10, 1);
  EXPECT_TRUE(std::isfinite(mean_interval(enough, {}).lo));
}

TEST(Bootstrap, FollowsShiftScaleAndSign) {
  const std::vector<double> values = {1, 2, 2.5, 3, 3.5, 4, 9, 11};
  std::vector<double> moved;
  std::vector<double> mirrored;
  for (const double v : values) {
    moved.push_back(3 * v + 100);
    mirrored.push_back(-v);
  }
  const Interval i = mean_interval(values, {});
  const Interval m = mean_interval(moved, {});
  const Interval n = mean_interval(mirrored, {});
  // Rounding of values up to 133.
  EXPECT_NEAR(m.lo, 3 * i.lo + 100, 1e-12);
  EXPECT_NEAR(m.hi, 3 * i.hi + 100, 1e-12);
  EXPECT_NEAR(n.lo, -i.hi, 1e-12);
  EXPECT_NEAR(n.hi, -i.lo, 1e-12);
  EXPECT_GT(i.hi - mean(values), mean(values) - i.lo);  // skewed to the right, as the values are
}

TEST(Bootstrap, InfiniteStatisticsDoNotBreakTheInterval) {
  // A ratio whose denominator vanishes in many resamples.
  const std::vector<double> values = {0, 0, 0, 0, 1};
  const auto inverse = [&](std::span<const int64_t> blocks) {
    const double m = mean_of(values, blocks);
    return m == 0 ? kInfinity : 1 / m;
  };
  const Interval i = bootstrap_interval(5, inverse, {.resamples = 2000});
  EXPECT_GE(i.lo, 1);
  EXPECT_EQ(i.hi, kInfinity);
}

}  // namespace
}  // namespace triptych
