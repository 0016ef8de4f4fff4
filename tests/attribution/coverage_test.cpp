// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How often 95 % intervals cover, simulated: docs/adr/0011-expanded-percentile-intervals.md.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "attribution/bootstrap.h"
#include "attribution/speedup.h"
#include "attribution/stats.h"
#include "base/random.h"
#include "tests/attribution/bca_reference.h"

namespace triptych {
namespace {

constexpr double kConfidence = 0.95;

enum class Noise : uint8_t { kNormal, kLognormal, kStudent3, kOutliers, kSkewed };
constexpr std::array<const char*, 5> kNoiseNames = {"normal", "lognormal", "t3", "outliers",
                                                    "skewed"};

/// ln of the noise of one block of one stack, `i`-th of stream `seed`.
double log_noise(Noise noise, uint64_t seed, uint64_t i) {
  const double z = random_normal(seed, 4 * i);
  switch (noise) {
    case Noise::kNormal:
      return 0.02 * z;
    case Noise::kLognormal:  // other work only adds time
    case Noise::kSkewed:
      return 0.02 * std::exp(0.5 * z);
    case Noise::kStudent3: {
      double squares = 0;
      for (uint64_t k = 1; k <= 3; ++k) {
        const double other = random_normal(seed, 4 * i + k);
        squares += other * other;
      }
      return 0.02 * z / std::sqrt(squares / 3);
    }
    case Noise::kOutliers:  // one block in twenty takes half as long again
      return 0.02 * z + (random_uniform(~seed, i) < 0.05 ? std::log(1.5) : 0.0);
  }
  return NAN;
}

/// Costs of the same stack under two names: a slow minute of the machine is in both.
std::vector<StackSamples> identical_pair(Noise noise, uint64_t seed, uint64_t blocks) {
  std::vector<StackSamples> pair = {{"a", {}}, {"b", {}}};
  for (uint64_t i = 0; i < blocks; ++i) {
    const double shared = 5 + 0.1 * random_normal(3 * seed, i);
    pair[0].cost.push_back(std::exp(shared + log_noise(noise, 3 * seed + 1, i)));
    const Noise of_second = noise == Noise::kSkewed ? Noise::kNormal : noise;
    pair[1].cost.push_back(std::exp(shared + log_noise(of_second, 3 * seed + 2, i)));
  }
  return pair;
}

/// ln of the ratio that the blocks of identical_pair() are drawn around.
double true_log_ratio(Noise noise) {
  return noise == Noise::kSkewed ? 0.02 * std::exp(0.125) : 0;  // mean of a lognormal
}

std::vector<double> log_ratios(const std::vector<StackSamples>& pair) {
  std::vector<double> ratios;
  for (size_t i = 0; i < pair[0].cost.size(); ++i) {
    ratios.push_back(std::log(pair[0].cost[i]) - std::log(pair[1].cost[i]));
  }
  return ratios;
}

bool covers(const Interval& interval, double value) {
  return interval.lo <= value && value <= interval.hi;
}

struct Coverage {
  double before = 0;    ///< BCa.
  double expanded = 0;  ///< BCa with the tails of expanded_tail().
  double now = 0;       ///< percentile_interval().
  double student = 0;   ///< Student's t.
};

/// Shares of `sets` of blocks whose interval of the mean log ratio covers the true one.
Coverage coverage_of_mean(Noise noise, uint64_t blocks, int sets) {
  const double truth = true_log_ratio(noise);
  const double tail = expanded_tail(static_cast<int64_t>(blocks), kConfidence);
  Coverage covered;
  for (int set = 0; set < sets; ++set) {
    const auto seed = static_cast<uint64_t>(set);
    const std::vector<double> ratios = log_ratios(identical_pair(noise, seed, blocks));
    Resamples r =
        std::move(resample_means({&ratios, 1}, {.resamples = 1000, .seed = seed}).front());
    covered.before += covers(test::bca_interval(r, ratios, (1 - kConfidence) / 2), truth);
    covered.expanded += covers(test::bca_interval(r, ratios, tail), truth);
    covered.student += covers(test::student_interval(ratios, kConfidence), truth);
    covered.now += covers(percentile_interval(std::move(r), kConfidence), truth);
  }
  for (double* share : {&covered.before, &covered.expanded, &covered.now, &covered.student}) {
    *share /= sets;
  }
  std::printf("  %-10s n=%-3d BCa %.3f  expanded BCa %.3f  expanded percentile %.3f  t %.3f\n",
              kNoiseNames[static_cast<size_t>(noise)], static_cast<int>(blocks), covered.before,
              covered.expanded, covered.now, covered.student);
  return covered;
}

// 1000 sets have a standard error of 0.007 at 0.95. Both names are one stack, so what does not
// cover is an A/A comparison that finds a difference.
TEST(Coverage, OfNormalNoise) {
  for (const uint64_t blocks : {8, 10, 20, 40}) {
    const Coverage covered = coverage_of_mean(Noise::kNormal, blocks, 1000);
    EXPECT_GE(covered.now, 0.93) << blocks;
    EXPECT_LE(covered.now, 0.97) << blocks;
    EXPECT_LE(1 - covered.now, 0.06) << blocks;
    EXPECT_GT(covered.now, covered.before) << blocks;
  }
}

// The range of five blocks, which no resample leaves, is all that a bootstrap knows of their tails.
TEST(Coverage, FiveBlocksCoverLessThanTheyName) {
  const Coverage covered = coverage_of_mean(Noise::kNormal, 5, 1000);
  EXPECT_GT(covered.now, covered.before + 0.04);
  EXPECT_GE(covered.now, 0.88);
  EXPECT_LT(covered.now, 0.95);
}

// 400 sets have a standard error of 0.012 at 0.94. Outliers that few blocks hold by chance, or not,
// cost some coverage whatever is done; the acceleration of BCa, estimated from the same few blocks,
// costs the most.
TEST(Coverage, OfHeavyTails) {
  for (const Noise noise :
       {Noise::kLognormal, Noise::kStudent3, Noise::kOutliers, Noise::kSkewed}) {
    for (const uint64_t blocks : {5, 8, 10, 20, 40}) {
      const Coverage covered = coverage_of_mean(noise, blocks, 400);
      EXPECT_GE(covered.now, blocks < 8 ? 0.87 : 0.9) << blocks;
      EXPECT_GT(covered.now, covered.before) << blocks;
      if (noise == Noise::kOutliers && blocks >= 8) {
        EXPECT_GT(covered.now, covered.expanded + 0.02) << blocks;
      }
    }
  }
}

// A median of few values takes few values, so its interval errs on the wide side.
TEST(Coverage, OfMedians) {
  for (const Noise noise : {Noise::kNormal, Noise::kStudent3, Noise::kOutliers}) {
    for (const uint64_t blocks : {8, 10, 20}) {
      constexpr int kSets = 200;  // standard error 0.015
      int covered = 0;
      for (uint64_t set = 0; set < kSets; ++set) {
        const std::vector<double> ratios = log_ratios(identical_pair(noise, set, blocks));
        covered += covers(median_interval(ratios, {.resamples = 1000, .seed = set}), 0);
      }
      const double share = static_cast<double>(covered) / kSets;
      std::printf("  %-10s n=%-3d median: expanded percentile %.3f\n",
                  kNoiseNames[static_cast<size_t>(noise)], static_cast<int>(blocks), share);
      EXPECT_GE(share, 0.92) << blocks;
    }
  }
}

TEST(Coverage, IsThatOfDecompositions) {
  for (uint64_t set = 0; set < 20; ++set) {
    const std::vector<StackSamples> pair = identical_pair(Noise::kNormal, set, 10);
    const BootstrapOptions options{.resamples = 1000, .seed = set};
    const std::vector<std::string> names = {"identical"};
    const Decomposition d = decompose_path(pair, names, options).value();
    const Interval expected = mean_interval(log_ratios(pair), options);
    EXPECT_EQ(d.log_total_interval.lo, expected.lo);
    EXPECT_EQ(d.log_total_interval.hi, expected.hi);
    EXPECT_EQ(d.share_refused, covers(expected, 0));
  }
}

}  // namespace
}  // namespace triptych
