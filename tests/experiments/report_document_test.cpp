// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// waterfall(); the document as a whole is tested by the golden files of report_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "experiments/report_render.h"

namespace triptych {
namespace {

TEST(Waterfall, StepsFollowEachOther) {
  EXPECT_EQ(waterfall({1.0, 1.0}, 4), (std::vector<std::string>{"[##  ]", "[  ##]"}));
  EXPECT_EQ(waterfall({2.0, -1.0}, 4), (std::vector<std::string>{"[####]", "[  --]"}));
  EXPECT_EQ(waterfall({-1.0, 2.0}, 4), (std::vector<std::string>{"[--  ]", "[####]"}));
  EXPECT_EQ(waterfall({0.0}, 4), (std::vector<std::string>{"[    ]"}));
  EXPECT_TRUE(waterfall({}, 4).empty());
}

TEST(Waterfall, EveryBarHasTheWidthAndOneSign) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(seed);
    std::vector<double> values;
    for (uint64_t i = 0; i < 1 + seed % 6; ++i) {
      values.push_back(static_cast<double>(random.below(2001)) / 1000 - 1);
    }
    const std::vector<std::string> bars = waterfall(values, 14);
    ASSERT_EQ(bars.size(), values.size());
    for (size_t i = 0; i < bars.size(); ++i) {
      EXPECT_EQ(bars[i].size(), 16U);
      EXPECT_EQ(std::count(bars[i].begin(), bars[i].end(), values[i] < 0 ? '#' : '-'), 0);
    }
  }
}

}  // namespace
}  // namespace triptych
