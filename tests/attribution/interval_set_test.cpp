// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/interval_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <limits>

#include "base/random.h"

namespace triptych {
namespace {

constexpr int kRange = 64;  // ns; small, so that random intervals touch, nest and coincide often
using Bits = std::bitset<kRange>;

std::vector<TimeInterval> random_intervals(RandomStream& random) {
  std::vector<TimeInterval> intervals(random.below(9));
  for (TimeInterval& interval : intervals) {
    interval.start_ns = static_cast<int64_t>(random.below(kRange));
    // Sometimes empty, sometimes end < start.
    const auto length = static_cast<int64_t>(random.below(14)) - 2;
    interval.end_ns = std::min<int64_t>(interval.start_ns + length, kRange);
  }
  return intervals;
}

Bits bits_of(std::span<const TimeInterval> intervals) {
  Bits bits;
  for (const TimeInterval& interval : intervals) {
    for (int64_t t = interval.start_ns; t < interval.end_ns; ++t) bits.set(static_cast<size_t>(t));
  }
  return bits;
}

void expect_same(const IntervalSet& set, const Bits& bits) {
  EXPECT_EQ(bits_of(set.intervals()), bits);
  EXPECT_EQ(set.length_ns(), static_cast<int64_t>(bits.count()));
  EXPECT_EQ(set.empty(), bits.none());
  // The one form of a set: sorted, not empty, not touching.
  for (size_t i = 0; i < set.intervals().size(); ++i) {
    EXPECT_LT(set.intervals()[i].start_ns, set.intervals()[i].end_ns);
    if (i > 0) {
      EXPECT_GT(set.intervals()[i].start_ns, set.intervals()[i - 1].end_ns);
    }
  }
}

TEST(IntervalSet, AgreesWithABitmap) {
  RandomStream random(1);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<TimeInterval> list_a = random_intervals(random);
    const std::vector<TimeInterval> list_b = random_intervals(random);
    const Bits bits_a = bits_of(list_a);
    const Bits bits_b = bits_of(list_b);
    const IntervalSet a(list_a);
    const IntervalSet b(list_b);
    SCOPED_TRACE(round);
    expect_same(a, bits_a);
    expect_same(a.unite(b), bits_a | bits_b);
    expect_same(a.intersect(b), bits_a & bits_b);
    expect_same(a.subtract(b), bits_a & ~bits_b);
    const TimeInterval window{static_cast<int64_t>(random.below(kRange)),
                              static_cast<int64_t>(random.below(kRange))};
    expect_same(a.clip(window), bits_a & bits_of({&window, 1}));
    if (HasFailure()) return;
  }
}

TEST(IntervalSet, JoinsTouchingIntervals) {
  const IntervalSet set({{10, 20}, {0, 10}, {30, 30}, {25, 21}});
  ASSERT_EQ(set.intervals().size(), 1u);
  EXPECT_EQ(set.intervals()[0], (TimeInterval{0, 20}));
}

TEST(IntervalSet, OneHoleCutsManyIntervals) {
  const IntervalSet set({{0, 10}, {20, 30}, {40, 50}});
  EXPECT_EQ(set.subtract(IntervalSet({{5, 45}})), IntervalSet({{0, 5}, {45, 50}}));
}

TEST(IntervalSet, ManyHolesCutOneInterval) {
  const IntervalSet holes({{-5, 1}, {3, 4}, {8, 12}});
  EXPECT_EQ(IntervalSet({{0, 10}}).subtract(holes), IntervalSet({{1, 3}, {4, 8}}));
}

TEST(IntervalSet, EmptySetIsNeutral) {
  const IntervalSet none;
  const IntervalSet set({{3, 9}});
  EXPECT_EQ(set.unite(none), set);
  EXPECT_EQ(none.unite(set), set);
  EXPECT_EQ(set.subtract(none), set);
  EXPECT_TRUE(none.subtract(set).empty());
  EXPECT_TRUE(set.intersect(none).empty());
  EXPECT_TRUE(none.clip({0, 10}).empty());
  EXPECT_EQ(none.length_ns(), 0);
}

TEST(IntervalSet, HoldsTheExtremesOfTime) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const IntervalSet all({{kMin, kMax}});
  EXPECT_EQ(all.clip({-1, 1}).length_ns(), 2);
  EXPECT_EQ(all.subtract(IntervalSet({{kMin, 0}})).length_ns(), kMax);
}

}  // namespace
}  // namespace triptych
