// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/common/philox.h"
#include "kernels/common/sample_math.h"

namespace triptych {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(uint64_t seed, size_t count, double deviation) {
  std::vector<float> logits(count);
  for (size_t i = 0; i < count; ++i) {
    logits[i] = static_cast<float>(deviation * random_normal(seed, i));
  }
  return logits;
}

// The probabilities of a choice, in double and with a full sort.
std::vector<double> reference(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  }
  const auto weight = [&](size_t i) {
    return std::exp((double{logits[i]} - double{logits[order[0]]}) / double{params.temperature});
  };
  double total = 0;
  for (const size_t i : order) total += weight(i);
  double sum = 0;
  size_t kept = 0;
  while (kept < order.size() && sum < double{params.top_p} * total) sum += weight(order[kept++]);
  std::vector<double> probabilities(logits.size());
  for (size_t k = 0; k < kept; ++k) probabilities[order[k]] = weight(order[k]) / sum;
  return probabilities;
}

std::vector<int64_t> count_tokens(const std::vector<float>& logits, const SamplingParams& params,
                                  int32_t draws) {
  std::vector<int64_t> counts(logits.size());
  for (int32_t i = 0; i < draws; ++i) {
    const int32_t token = sample_token(logits, params, {.request = i % 7, .position = i});
    ++counts[static_cast<size_t>(token)];
  }
  return counts;
}

// Known answers of the paper's authors (Random123, kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  const auto words = [](const Philox4x32& result) {
    return std::vector<uint32_t>(result.words, result.words + 4);
  };
  EXPECT_EQ(words(philox4x32({{0, 0, 0, 0}}, 0)),
            (std::vector<uint32_t>{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(words(philox4x32({{kOnes, kOnes, kOnes, kOnes}}, ~uint64_t{0})),
            (std::vector<uint32_t>{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(
      words(philox4x32({{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}}, 0x299F31D0A4093822)),
      (std::vector<uint32_t>{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(SampleBits, DependOnEachOfSeedRequestAndPosition) {
  std::set<uint32_t> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
    for (const SampleKey key : {SampleKey{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
      seen.insert(sample_bits(seed, key));
    }
  }
  EXPECT_EQ(seen.size(), 12u);
}

// Rounding down costs at most one unit; the f32 argument of exp is off by 2^-24 of itself twice
// (difference and product), and the reduction and the series by a few 2^-24 each.
TEST(SampleWeight, IsTheExponentialInUnitsOf2ToTheMinus40) {
  for (int i = 0; i <= 28000; ++i) {
    const float d = -1e-3f * static_cast<float>(i);
    const double exact = std::exp(double{d}) * 0x1.0p40;
    const double error = (2.0 * std::abs(double{d}) + 6.0) * 0x1.0p-24 * exact + 1.0;
    ASSERT_NEAR(static_cast<double>(sample_weight(d, 0.0f, 1.0f)), exact, error) << "d " << d;
  }
  EXPECT_EQ(sample_weight(3.0f, 3.0f, 1.0f), kFullSampleWeight);
  EXPECT_EQ(sample_weight(-kInf, 3.0f, 1.0f), 0u);
  EXPECT_EQ(sample_weight(-kInf, -kInf, 1.0f), kFullSampleWeight);
  EXPECT_EQ(sample_weight(3.0f, kInf, 1.0f), 0u);
}

TEST(SampleTarget, SpreadsOverTheSumAndStaysBelowIt) {
  EXPECT_EQ(sample_target(1000, 0), 0u);
  EXPECT_EQ(sample_target(1000, 0x80000000), 500u);
  EXPECT_EQ(sample_target(1000, 0xFFFFFFFF), 999u);
  const uint64_t large = (uint64_t{1} << 59) + 12345;
  EXPECT_EQ(sample_target(large, 0x80000000), large / 2);
  EXPECT_LT(sample_target(large, 0xFFFFFFFF), large);
}

TEST(SampleToken, GreedyTakesTheLowestOfTheLargest) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 2, 3}, {}, {}), 1);
  EXPECT_EQ(sample_token(std::vector<float>{kNan, -kInf, kNan}, {}, {}), 1);
  EXPECT_EQ(sample_token(std::vector<float>{kNan, kNan}, {}, {}), 0);
  EXPECT_EQ(sample_token(std::vector<float>{-0.0f, 0.0f}, {}, {}), 0);
}

TEST(SampleToken, NanIsNeverChosen) {
  const std::vector<float> logits = {kNan, 1.0f, kNan, 1.0f};
  const auto counts = count_tokens(logits, {.temperature = 5.0f, .top_p = 0.99f}, 200);
  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(sample_token(std::vector<float>{kNan, kNan}, {.temperature = 1.0f}, {}), 0);
}

TEST(SampleToken, InfinityTakesEverything) {
  const std::vector<float> logits = {5.0f, kInf, -kInf};
  EXPECT_EQ(count_tokens(logits, {.temperature = 100.0f}, 50)[1], 50);
}

// Pearson's statistic over the tokens that may be chosen, against its 99.9 % point (Wilson and
// Hilferty 1931); the draws are fixed by the seed, so the test cannot flicker.
TEST(SampleToken, DrawsByProbability) {
  const auto logits = random_logits(3, 200, 1.5);
  for (const SamplingParams params : {SamplingParams{.temperature = 1.0f, .seed = 5},
                                      {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 6},
                                      {.temperature = 2.0f, .top_k = 10, .seed = 7},
                                      {.temperature = 1.3f, .top_p = 0.7f, .seed = 8}}) {
    constexpr int32_t kDraws = 40000;
    const auto expected = reference(logits, params);
    const auto counts = count_tokens(logits, params, kDraws);
    double statistic = 0;
    double bins = 0;
    double rare_expected = 0;  // bins below 5 expected draws are put together
    double rare_seen = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (expected[i] == 0) {
        ASSERT_EQ(counts[i], 0) << to_string(params) << " token " << i;
        continue;
      }
      const double mean = expected[i] * kDraws;
      if (mean < 5) {
        rare_expected += mean;
        rare_seen += static_cast<double>(counts[i]);
        continue;
      }
      statistic += std::pow(static_cast<double>(counts[i]) - mean, 2.0) / mean;
      ++bins;
    }
    if (rare_expected > 0) {
      statistic += std::pow(rare_seen - rare_expected, 2.0) / rare_expected;
      ++bins;
    }
    const double freedom = bins - 1;
    const double limit =
        freedom * std::pow(1 - 2 / (9 * freedom) + 3.09 * std::sqrt(2 / (9 * freedom)), 3.0);
    EXPECT_LT(statistic, limit) << to_string(params) << " freedom " << freedom;
    EXPECT_GT(statistic, freedom / 4) << "too even: the draws do not vary";
  }
}

TEST(SampleToken, TopKKeepsTheLargestAndOfEqualOnesTheFirst) {
  const std::vector<float> logits = {1, 2, 2, 0, 2, 3};
  const auto kept = [&](int32_t top_k) {
    const auto counts = count_tokens(logits, {.temperature = 10.0f, .top_k = top_k}, 500);
    std::set<size_t> tokens;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) tokens.insert(i);
    }
    return tokens;
  };
  EXPECT_EQ(kept(1), (std::set<size_t>{5}));
  EXPECT_EQ(kept(2), (std::set<size_t>{1, 5}));
  EXPECT_EQ(kept(3), (std::set<size_t>{1, 2, 5}));
  EXPECT_EQ(kept(5), (std::set<size_t>{0, 1, 2, 4, 5}));
  EXPECT_EQ(kept(100), (std::set<size_t>{0, 1, 2, 3, 4, 5}));
}

TEST(SampleToken, TopPKeepsTheFewestThatReachIt) {
  // 0.5, 0.25, 0.125, 0.125
  const std::vector<float> logits = {std::log(4.0f), std::log(2.0f), 0.0f, 0.0f};
  const auto highest = [&](float top_p) {
    const auto counts = count_tokens(logits, {.temperature = 1.0f, .top_p = top_p}, 500);
    size_t last = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) last = i;
    }
    return last;
  };
  EXPECT_EQ(highest(0.4f), 0u);
  EXPECT_EQ(highest(0.6f), 1u);
  EXPECT_EQ(highest(0.8f), 2u);
  EXPECT_EQ(highest(0.95f), 3u);
}

TEST(SampleToken, TheSameKeyGivesTheSameToken) {
  const auto logits = random_logits(4, 1000, 2.0);
  const SamplingParams params{.temperature = 1.0f, .top_p = 0.9f, .seed = 9};
  const SampleKey key{.request = 3, .position = 17};
  EXPECT_EQ(sample_token(logits, params, key), sample_token(logits, params, key));
  std::set<int32_t> tokens;
  for (int32_t position = 0; position < 20; ++position) {
    tokens.insert(sample_token(logits, params, {.request = 3, .position = position}));
  }
  EXPECT_GT(tokens.size(), 5u);
}

TEST(CheckSampling, NamesTheFieldAndItsRange) {
  const auto reason = [](const SamplingParams& params) {
    const Status status = check_sampling(params);
    return status.has_value() ? std::string("valid") : status.error().message;
  };
  EXPECT_EQ(reason({}), "valid");
  EXPECT_EQ(reason({.temperature = 0.8f, .top_k = 40, .top_p = 0.95f}), "valid");
  EXPECT_EQ(reason({.temperature = -1.0f}), "temperature -1: expected 0 (greedy) or 0.001 to 1000");
  EXPECT_NE(reason({.temperature = kNan}).find("temperature nan"), std::string::npos);
  EXPECT_NE(reason({.temperature = 1e9f}).find("temperature 1e+09"), std::string::npos);
  EXPECT_EQ(reason({.temperature = 1.0f, .top_k = -1}), "top_k -1: expected 0 (all) or more");
  EXPECT_EQ(reason({.temperature = 1.0f, .top_p = 0.0f}), "top_p 0: expected 1e-06 to 1 (all)");
  EXPECT_NE(reason({.temperature = 1.0f, .top_p = 1.5f}).find("top_p 1.5"), std::string::npos);
}

TEST(SamplingText, IsTheSameForTheSameChoice) {
  EXPECT_EQ(to_string(SamplingParams{}), "greedy");
  EXPECT_EQ(to_string(SamplingParams{.seed = 4}), "greedy");
  EXPECT_EQ(to_string(SamplingParams{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 1}),
            "temperature=0.8,top_k=40,top_p=0.95,seed=1");
}

}  // namespace
}  // namespace triptych
