// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>

namespace triptych {
namespace {

TEST(Units, SignificantDigits) {
  EXPECT_EQ(format_significant(0.012345, 3), "0.0123");
  EXPECT_EQ(format_significant(9.996, 3), "10.0") << "rounding may add a digit before the point";
  EXPECT_EQ(format_significant(123456, 3), "123000");
  EXPECT_EQ(format_significant(-1.5, 2), "-1.5");
  EXPECT_EQ(format_significant(0.0, 3), "0");
  EXPECT_EQ(format_significant(std::numeric_limits<double>::quiet_NaN(), 3), "nan");
  EXPECT_EQ(format_significant(-std::numeric_limits<double>::infinity(), 3), "-inf");
}

TEST(Units, Durations) {
  EXPECT_EQ(format_duration_ns(0), "0 ns");
  EXPECT_EQ(format_duration_ns(999), "999 ns");
  EXPECT_EQ(format_duration_ns(999.9), "1.00 us") << "a rounded value takes the unit it reaches";
  EXPECT_EQ(format_duration_ns(12345), "12.3 us");
  EXPECT_EQ(format_duration_ns(4.56e6), "4.56 ms");
  EXPECT_EQ(format_duration_ns(7.89e9), "7.89 s");
  EXPECT_EQ(format_duration_ns(-2e6), "-2.00 ms");
}

TEST(Units, Bytes) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 * 1024), "1.00 GiB");
}

TEST(Units, ClockIsMonotonicAndUtcHasItsForm) {
  const int64_t first = now_ns();
  EXPECT_LE(first, now_ns());
  EXPECT_TRUE(std::regex_match(utc_now(), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")));
}

}  // namespace
}  // namespace triptych
