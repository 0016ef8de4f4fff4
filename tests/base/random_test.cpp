// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace triptych {
namespace {

constexpr int kSamples = 200000;

// Standard error of a mean of n uniforms is 0.289 / sqrt(n); five of them make a failure by chance
// rarer than one in a million, and the seed is fixed.
TEST(Random, UniformMomentsAndRange) {
  double sum = 0;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const double u = random_uniform(42, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / kSamples, 0.5, 5 * 0.289 / std::sqrt(kSamples));
}

TEST(Random, NormalMoments) {
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const double z = random_normal(42, i);
    sum += z;
    squares += z * z;
  }
  EXPECT_NEAR(sum / kSamples, 0.0, 5.0 / std::sqrt(kSamples));
  EXPECT_NEAR(squares / kSamples, 1.0, 5.0 * std::sqrt(2.0 / kSamples));
}

TEST(Random, StreamIsTheSameAsItsCounters) {
  RandomStream stream(9);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(stream(), random_bits(9, i));
}

TEST(Random, NeighbouringSeedsAndCountersDiffer) {
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    if (random_bits(1, i) == random_bits(2, i) || random_bits(1, i) == random_bits(1, i + 1))
      ++same;
  }
  EXPECT_EQ(same, 0);
}

// Chi-square over 10 bins has 9 degrees of freedom: mean 9, 99.99 % below 34.
TEST(Random, BelowIsUniform) {
  RandomStream stream(3);
  std::vector<int> count(10);
  for (int i = 0; i < kSamples; ++i) ++count[stream.below(10)];
  double chi_square = 0;
  for (const int c : count) chi_square += std::pow(c - kSamples / 10.0, 2) / (kSamples / 10.0);
  EXPECT_LT(chi_square, 34.0);
}

}  // namespace
}  // namespace triptych
