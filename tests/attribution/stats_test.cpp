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

TEST(Stats, NormalQuantileAgainstReference) {
  // scipy.stats.norm.ppf 1.17.1. The tolerance is the rounding of erfc and of p itself.
  EXPECT_NEAR(normal_quantile(1e-300), -37.0470962993612, 1e-12);
  EXPECT_NEAR(normal_quantile(1e-10), -6.361340902404056, 1e-14);
  EXPECT_NEAR(normal_quantile(0.001), -3.090232306167813, 1e-14);
  EXPECT_NEAR(normal_quantile(0.025), -1.9599639845400545, 1e-14);
  EXPECT_NEAR(normal_quantile(0.3), -0.5244005127080409, 1e-14);
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-16);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(normal_quantile(0.99999), 4.264890793923841, 1e-11);  // 1 - p has 11 digits
}

TEST(Stats, NormalQuantileInvertsTheDistribution) {
  for (uint64_t i = 0; i < 1000; ++i) {
    const double p = random_uniform(3, i);
    if (p == 0) continue;
    EXPECT_NEAR(normal_cdf(normal_quantile(p)), p, 1e-15);
  }
}

TEST(Bootstrap, MatchesScipyBca) {
  // scipy.stats.bootstrap(method='BCa'), mean of 20 runs of 100000 resamples; their standard
  // deviation is 0.04 (lo) and 0.23 (hi), ours with 100000 the same, so 5 of sqrt(2) times that.
  const std::vector<double> values = {412, 398, 455, 401, 430, 529, 407, 418, 396, 441};
  const BootstrapOptions options{.resamples = 100000, .seed = 7};
  const Interval of_mean = mean_interval(values, options);
  EXPECT_NEAR(of_mean.lo, 411.98, 0.3);
  EXPECT_NEAR(of_mean.hi, 465.145, 1.7);
  const Interval of_median = median_interval(values, options);
  EXPECT_EQ(of_median.lo, 401);
  EXPECT_EQ(of_median.hi, 441);
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
  for (size_t count = 1; count < 3; ++count) {
    const std::vector<double> values = normal_values(2, count, 10, 1);
    for (const Interval& i : {mean_interval(values, {}), median_interval(values, {})}) {
      EXPECT_EQ(i.lo, -kInfinity);
      EXPECT_EQ(i.hi, kInfinity);
    }
  }
  const std::vector<double> three = normal_values(2, 3, 10, 1);
  EXPECT_TRUE(std::isfinite(mean_interval(three, {}).lo));
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
  // Rounding in the acceleration moves the level by 1e-15, times the range of the resamples.
  EXPECT_NEAR(m.lo, 3 * i.lo + 100, 1e-9);
  EXPECT_NEAR(m.hi, 3 * i.hi + 100, 1e-9);
  EXPECT_NEAR(n.lo, -i.hi, 1e-9);
  EXPECT_NEAR(n.hi, -i.lo, 1e-9);
  EXPECT_GT(i.hi - mean(values), mean(values) - i.lo);  // skewed to the right, and so is BCa
}

TEST(Bootstrap, InfiniteStatisticsDoNotBreakTheInterval) {
  // A ratio whose denominator vanishes in many resamples.
  const std::vector<double> values = {0, 0, 0, 1};
  const auto inverse = [&](std::span<const int64_t> blocks) {
    const double m = mean_of(values, blocks);
    return m == 0 ? kInfinity : 1 / m;
  };
  const Interval i = bootstrap_interval(4, inverse, {.resamples = 2000});
  EXPECT_GE(i.lo, 1);
  EXPECT_EQ(i.hi, kInfinity);
}

TEST(Bootstrap, CoverageOfTheMeanOfNormalBlocks) {
  // A bootstrap of 12 blocks is too narrow: sqrt(11/12) in spread and normal instead of t_11
  // quantiles give a coverage near P(|t_11| < 1.96 * sqrt(11/12)) = 0.913. With 400 sets its
  // standard error is 0.014; the band is 4 of these either side, failing once in 16000 seeds.
  constexpr int kSets = 400;
  int covered = 0;
  for (uint64_t set = 0; set < kSets; ++set) {
    const std::vector<double> values = normal_values(1000 + set, 12, 50, 4);
    const Interval i = mean_interval(values, {.resamples = 2000, .seed = set});
    covered += i.lo <= 50 && 50 <= i.hi ? 1 : 0;
  }
  const double coverage = static_cast<double>(covered) / kSets;
  RecordProperty("coverage", std::to_string(coverage));
  EXPECT_GT(coverage, 0.913 - 4 * 0.0141);
  EXPECT_LT(coverage, 0.913 + 4 * 0.0141);
}

}  // namespace
}  // namespace triptych
