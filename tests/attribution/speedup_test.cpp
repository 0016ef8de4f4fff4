// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/speedup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"

namespace triptych {
namespace {

// Sums of a few logs of magnitude 20: 1e-12 is 300 times their rounding.
constexpr double kLogTolerance = 1e-12;
const BootstrapOptions kFast{.resamples = 500};

StackSamples stack(std::string name, double cost, double noise, uint64_t seed, size_t blocks) {
  StackSamples samples{std::move(name), {}};
  for (size_t b = 0; b < blocks; ++b) {
    samples.cost.push_back(cost * std::exp(noise * random_normal(seed, b)));
  }
  return samples;
}

/// A path of 2 to 6 stacks with costs over some decades, 1 to 12 blocks.
std::vector<StackSamples> random_path(uint64_t seed) {
  const size_t stacks = 2 + random_bits(seed, 0) % 5;
  const size_t blocks = 1 + random_bits(seed, 1) % 12;
  std::vector<StackSamples> path;
  for (size_t s = 0; s < stacks; ++s) {
    const double cost = std::exp(5 + 2 * random_normal(seed, 100 + s));
    path.push_back(stack("s" + std::to_string(s), cost, 0.05, seed * 31 + s, blocks));
  }
  return path;
}

std::vector<std::string> names_for(const std::vector<StackSamples>& path) {
  std::vector<std::string> names;
  for (size_t i = 0; i + 1 < path.size(); ++i) names.push_back("f" + std::to_string(i));
  return names;
}

Decomposition decomposed(const std::vector<StackSamples>& path) {
  return decompose_path(path, names_for(path), kFast).value();
}

double sum_of(const Decomposition& d) {
  double sum = 0;
  for (const Contribution& c : d.contributions) sum += c.log_contribution;
  return sum;
}

TwoByTwo random_cells(uint64_t seed, size_t blocks) {
  const auto cost = [seed](uint64_t i) { return std::exp(6 + random_normal(seed, i)); };
  return {.baseline = stack("a", cost(1), 0.02, seed + 1000, blocks),
          .intermediate = stack("b", cost(2), 0.02, seed + 2000, blocks),
          .full = stack("c", cost(3), 0.02, seed + 3000, blocks),
          .corner = stack("d", cost(4), 0.02, seed + 4000, blocks),
          .first_factor = "runtime",
          .second_factor = "kernel"};
}

void expect_mirrored(const Interval& a, const Interval& b) {
  if (std::isinf(a.lo)) {
    EXPECT_TRUE(std::isinf(b.lo));
    return;
  }
  EXPECT_NEAR(a.lo, -b.hi, kLogTolerance);
  EXPECT_NEAR(a.hi, -b.lo, kLogTolerance);
}

TEST(DecomposePath, HandComputed) {
  const std::vector<StackSamples> path = {{"hf", {800, 880, 720, 800, 840}},
                                          {"fp16", {400, 440, 360, 400, 420}},
                                          {"awq", {100, 110, 90, 100, 105}}};
  const std::vector<std::string> names = {"runtime", "kernel_quantization"};
  const Decomposition d = decompose_path(path, names, {}).value();
  EXPECT_EQ(d.method, "path");
  EXPECT_NEAR(d.log_total, std::log(8), kLogTolerance);
  ASSERT_EQ(d.contributions.size(), 2U);
  EXPECT_EQ(d.contributions[0].factor_name, "runtime");
  EXPECT_EQ(d.contributions[0].from, "hf");
  EXPECT_EQ(d.contributions[0].to, "fp16");
  EXPECT_NEAR(d.contributions[0].log_contribution, std::log(2), kLogTolerance);
  EXPECT_NEAR(d.contributions[1].log_contribution, std::log(4), kLogTolerance);
  EXPECT_NEAR(*d.contributions[0].log_share, 1.0 / 3, kLogTolerance);
  EXPECT_NEAR(*d.contributions[1].log_share, 2.0 / 3, kLogTolerance);
  // Blocks move all stacks together, so pairing leaves no spread at all.
  EXPECT_NEAR(d.log_total_interval.lo, std::log(8), kLogTolerance);
  EXPECT_NEAR(d.log_total_interval.hi, std::log(8), kLogTolerance);
}

TEST(DecomposePath, ContributionsSumToTotalAndSharesToOne) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::vector<StackSamples> path = random_path(seed);
    const Decomposition d = decomposed(path);
    EXPECT_NEAR(sum_of(d), d.log_total, kLogTolerance);
    double log_ratio = 0;
    for (size_t b = 0; b < path[0].cost.size(); ++b) {
      log_ratio += std::log(path.front().cost[b] / path.back().cost[b]);
    }
    EXPECT_NEAR(d.log_total, log_ratio / static_cast<double>(path[0].cost.size()), kLogTolerance);
    if (d.share_refused) continue;
    double shares = 0;
    for (const Contribution& c : d.contributions) shares += c.log_share.value();
    EXPECT_NEAR(shares, 1, 1e-9);  // kLogTolerance / ln F, with |ln F| > 0.001
  }
}

TEST(DecomposePath, EstimatesLieInTheirIntervals) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Decomposition d = decomposed(random_path(seed));
    for (const Contribution& c : d.contributions) {
      EXPECT_LE(c.log_interval.lo, c.log_contribution + kLogTolerance);
      EXPECT_GE(c.log_interval.hi, c.log_contribution - kLogTolerance);
    }
  }
}

TEST(DecomposePath, SwappingBaselineAndVariantNegates) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<StackSamples> path = random_path(seed);
    const Decomposition forward = decomposed(path);
    std::reverse(path.begin(), path.end());
    const Decomposition backward = decomposed(path);
    EXPECT_NEAR(forward.log_total, -backward.log_total, kLogTolerance);
    expect_mirrored(forward.log_total_interval, backward.log_total_interval);
    const size_t rungs = forward.contributions.size();
    for (size_t i = 0; i < rungs; ++i) {
      const Contribution& there = forward.contributions[i];
      const Contribution& back = backward.contributions[rungs - 1 - i];
      EXPECT_NEAR(there.log_contribution, -back.log_contribution, kLogTolerance);
      expect_mirrored(there.log_interval, back.log_interval);
    }
  }
}

TEST(DecomposePath, ScalingAllCostsChangesNothing) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<StackSamples> path = random_path(seed);
    const Decomposition before = decomposed(path);
    for (StackSamples& samples : path) {
      for (double& cost : samples.cost) cost *= 1e6;
    }
    const Decomposition after = decomposed(path);
    EXPECT_NEAR(before.log_total, after.log_total, kLogTolerance);
    for (size_t i = 0; i < before.contributions.size(); ++i) {
      EXPECT_NEAR(before.contributions[i].log_contribution, after.contributions[i].log_contribution,
                  kLogTolerance);
    }
  }
}

TEST(DecomposePath, ScalingABlockOfAllStacksChangesNothing) {
  // A slow minute of the machine hits every stack of the block: pairing removes it.
  std::vector<StackSamples> path = random_path(11);
  const Decomposition before = decomposed(path);
  for (StackSamples& samples : path) samples.cost[0] *= 3;
  EXPECT_NEAR(before.log_total, decomposed(path).log_total, kLogTolerance);
}

TEST(DecomposePath, ScalingOneStackMovesOnlyItsRungs) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::vector<StackSamples> path = random_path(seed);
    const size_t moved = random_bits(seed, 77) % path.size();
    const Decomposition before = decomposed(path);
    for (double& cost : path[moved].cost) cost *= 2;
    const Decomposition after = decomposed(path);
    for (size_t rung = 0; rung < before.contributions.size(); ++rung) {
      // Costlier as the target of a rung: slower by ln 2; as its origin: faster by ln 2.
      const double expected = rung + 1 == moved ? -std::log(2) : rung == moved ? std::log(2) : 0;
      EXPECT_NEAR(
          after.contributions[rung].log_contribution - before.contributions[rung].log_contribution,
          expected, kLogTolerance);
    }
  }
}

TEST(DecomposePath, TheSameStackTwiceIsRefusedAShare) {
  std::vector<StackSamples> path = {stack("a", 100, 0.05, 1, 10),
                                    stack("a again", 100, 0.05, 1, 10)};
  const Decomposition equal = decomposed(path);
  EXPECT_EQ(equal.log_total, 0);
  EXPECT_TRUE(equal.share_refused);
  EXPECT_FALSE(equal.contributions[0].log_share.has_value());
  EXPECT_FALSE(equal.contributions[0].log_share_interval.has_value());

  // With noise of its own, the interval covers 0 for about 95 of 100 pairs (coverage_test.cpp); 100
  // pairs have a standard error of 2.
  int refused = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    path = {stack("a", 100, 0.05, 2 * seed, 10), stack("b", 100, 0.05, 2 * seed + 1, 10)};
    refused += decomposed(path).share_refused ? 1 : 0;
  }
  EXPECT_GE(refused, 87);
  EXPECT_LT(refused, 100);
}

TEST(DecomposePath, FewBlocksRefuseAShare) {
  const std::vector<StackSamples> path = {stack("a", 100, 0, 1, 2), stack("b", 10, 0, 2, 2)};
  const Decomposition d = decomposed(path);
  EXPECT_NEAR(d.log_total, std::log(10), kLogTolerance);
  EXPECT_EQ(d.log_total_interval.lo, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(d.log_total_interval.hi, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(d.share_refused);
}

TEST(DecomposePath, RefusesWhatItCannotCompare) {
  const StackSamples good{"good", {1, 2, 3}};
  const auto error_of = [](std::vector<StackSamples> path, std::vector<std::string> names) {
    const Result<Decomposition> result = decompose_path(path, names, kFast);
    EXPECT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    return result.error().message;
  };
  EXPECT_NE(error_of({good, {"short", {1, 2}}}, {"f"}).find("short has 2 blocks"),
            std::string::npos);
  EXPECT_NE(error_of({good, {"zero", {1, 0, 3}}}, {"f"}).find("block 1 of stack zero"),
            std::string::npos);
  EXPECT_NE(error_of({good, {"neg", {1, 2, -3}}}, {"f"}).find("-3"), std::string::npos);
  EXPECT_NE(error_of({good, {"nan", {1, std::nan(""), 3}}}, {"f"}).find("nan"), std::string::npos);
  EXPECT_NE(error_of({good, {"inf", {1, HUGE_VAL, 3}}}, {"f"}).find("inf"), std::string::npos);
  EXPECT_NE(error_of({good, good}, {"f"}).find("good appears twice"), std::string::npos);
  EXPECT_NE(error_of({good, {"b", {1, 2, 3}}}, {"f", "g"}).find("1 factor names, found 2"),
            std::string::npos);
  EXPECT_NE(error_of({good}, {}).find("at least 2 stacks"), std::string::npos);
  EXPECT_NE(error_of({{"a", {}}, {"b", {}}}, {"f"}).find("no blocks"), std::string::npos);
  EXPECT_FALSE(decompose_path(std::vector<StackSamples>{good, {"b", {1, 2, 3}}},
                              std::vector<std::string>{"f"}, {.resamples = 0}));
}

TEST(DecomposePath, SurvivesExtremeCosts) {
  const std::vector<StackSamples> path = {{"slow", {1e300, 1e300, 1e300}},
                                          {"fast", {1e-300, 1e-300, 1e-300}}};
  EXPECT_NEAR(decomposed(path).log_total, 600 * std::log(10), 1e-9);
}

TEST(Decompose2x2, EveryMethodSumsToTheSameTotal) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const TwoByTwo cells = random_cells(seed, 1 + seed % 10);
    const std::vector<Decomposition> methods = decompose_2x2(cells, kFast).value();
    ASSERT_EQ(methods.size(), 4U);
    EXPECT_EQ(methods[0].method, "path");
    EXPECT_EQ(methods[1].method, "path_reverse");
    EXPECT_EQ(methods[2].method, "shapley");
    EXPECT_EQ(methods[3].method, "interaction");
    for (const Decomposition& d : methods) {
      EXPECT_NEAR(sum_of(d), d.log_total, kLogTolerance);
      EXPECT_EQ(d.log_total, methods[0].log_total);
      EXPECT_EQ(d.log_total_interval.lo, methods[0].log_total_interval.lo);
    }
  }
}

TEST(Decompose2x2, ShapleyIsTheMeanOfBothOrders) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const TwoByTwo cells = random_cells(seed, 6);
    const std::vector<Decomposition> m = decompose_2x2(cells, kFast).value();
    const auto& path = m[0].contributions;
    const auto& reverse = m[1].contributions;
    const auto& shapley = m[2].contributions;
    EXPECT_EQ(reverse[0].factor_name, "kernel");
    EXPECT_EQ(reverse[0].to, "d");
    EXPECT_EQ(shapley[0].from, "");
    EXPECT_NEAR(shapley[0].log_contribution,
                (path[0].log_contribution + reverse[1].log_contribution) / 2, kLogTolerance);
    EXPECT_NEAR(shapley[1].log_contribution,
                (path[1].log_contribution + reverse[0].log_contribution) / 2, kLogTolerance);
    // The general formula over the same game.
    const std::vector<double> values = shapley_values(2, [&](uint32_t mask) {
      const double table[] = {0, path[0].log_contribution, reverse[0].log_contribution,
                              m[0].log_total};
      return table[mask];
    });
    EXPECT_NEAR(shapley[0].log_contribution, values[0], kLogTolerance);
    EXPECT_NEAR(shapley[1].log_contribution, values[1], kLogTolerance);
  }
}

TEST(Decompose2x2, InteractionIsTheDifferenceOfTheOrders) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<Decomposition> m = decompose_2x2(random_cells(seed, 6), kFast).value();
    const auto& rows = m[3].contributions;
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[2].factor_name, "interaction");
    EXPECT_NEAR(rows[2].log_contribution,
                m[0].contributions[1].log_contribution - m[1].contributions[0].log_contribution,
                kLogTolerance);
  }
}

TEST(Decompose2x2, AMultiplicativeModelHasNoInteraction) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    TwoByTwo cells = random_cells(seed, 8);
    for (size_t b = 0; b < 8; ++b) {
      cells.corner.cost[b] =
          cells.baseline.cost[b] * cells.full.cost[b] / cells.intermediate.cost[b];
    }
    const std::vector<Decomposition> m = decompose_2x2(cells, kFast).value();
    EXPECT_NEAR(m[3].contributions[2].log_contribution, 0, kLogTolerance);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(m[0].contributions[i].log_contribution, m[2].contributions[i].log_contribution,
                  kLogTolerance);
    }
  }
}

TEST(Decompose2x2, RefusesUnequalBlocks) {
  TwoByTwo cells = random_cells(1, 5);
  cells.corner.cost.pop_back();
  const auto result = decompose_2x2(cells, kFast);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(result.error().message.find("stack d has 4 blocks"), std::string::npos);
}

class Shapley : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] double game(uint64_t seed, uint32_t mask) const {
    return mask == 0 ? 0 : 4 * random_uniform(seed, mask) - 1;
  }
};

TEST_P(Shapley, Efficiency) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<double> values =
        shapley_values(GetParam(), [&](uint32_t mask) { return game(seed, mask); });
    double sum = 0;
    for (const double v : values) sum += v;
    EXPECT_NEAR(sum, game(seed, (1U << GetParam()) - 1), kLogTolerance);
  }
}

TEST_P(Shapley, Symmetry) {
  // The value depends on the number of factors alone, so they are all alike.
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<double> values = shapley_values(GetParam(), [&](uint32_t mask) {
      return game(seed, static_cast<uint32_t>(std::popcount(mask)));
    });
    for (const double v : values) EXPECT_NEAR(v, values[0], kLogTolerance);
  }
}

TEST_P(Shapley, NullPlayerAndLinearity) {
  const auto last = 1U << (GetParam() - 1);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    // The last factor never matters.
    const std::vector<double> values =
        shapley_values(GetParam(), [&](uint32_t mask) { return game(seed, mask & ~last); });
    EXPECT_NEAR(values.back(), 0, kLogTolerance);
    const std::vector<double> sum = shapley_values(GetParam(), [&](uint32_t mask) {
      return game(seed, mask & ~last) + 2 * game(seed + 99, mask);
    });
    const std::vector<double> other =
        shapley_values(GetParam(), [&](uint32_t mask) { return game(seed + 99, mask); });
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(sum[i], values[i] + 2 * other[i], kLogTolerance);
    }
  }
}

TEST_P(Shapley, IsTheMeanOverAllOrders) {
  const auto n = static_cast<size_t>(GetParam());
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  std::vector<double> total(n, 0.0);
  double orders = 0;
  do {
    uint32_t mask = 0;
    for (const size_t factor : order) {
      total[factor] += game(5, mask | 1U << factor) - game(5, mask);
      mask |= 1U << factor;
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  const std::vector<double> values =
      shapley_values(GetParam(), [&](uint32_t mask) { return game(5, mask); });
  for (size_t i = 0; i < n; ++i) EXPECT_NEAR(values[i], total[i] / orders, kLogTolerance);
}

INSTANTIATE_TEST_SUITE_P(Factors, Shapley, testing::Range(1, 9));

}  // namespace
}  // namespace triptych
