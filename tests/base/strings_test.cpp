// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/strings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"

namespace triptych {
namespace {

TEST(Strings, TrimRemovesOuterSpaceOnly) {
  EXPECT_EQ(trim("  a b \t\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Strings, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
  EXPECT_EQ(split(",", ','), (std::vector<std::string>{"", ""}));
}

TEST(Strings, JoinIsTheInverseOfSplit) {
  for (const std::string text : {"", "a", "a,b", ",,", "x,,y,"}) {
    EXPECT_EQ(join(split(text, ','), ","), text);
  }
}

TEST(Strings, EditDistanceKnownValues) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("stakcs", "stacks"), 1) << "neighbours swapped count once";
}

TEST(Strings, EditDistanceIsSymmetricAndBounded) {
  RandomStream random(7);
  for (int trial = 0; trial < 500; ++trial) {
    std::string a, b;
    for (auto n = random.below(9); n > 0; --n) a += static_cast<char>('a' + random.below(3));
    for (auto n = random.below(9); n > 0; --n) b += static_cast<char>('a' + random.below(3));
    const int distance = edit_distance(a, b);
    EXPECT_EQ(distance, edit_distance(b, a)) << a << " " << b;
    EXPECT_LE(distance, static_cast<int>(std::max(a.size(), b.size())));
    EXPECT_GE(distance,
              static_cast<int>(std::max(a.size(), b.size()) - std::min(a.size(), b.size())));
    EXPECT_EQ(distance == 0, a == b);
  }
}

TEST(Strings, NearestSuggestsOnlyWhatIsNear) {
  const std::vector<std::string> keys = {"stacks", "workload", "measure"};
  EXPECT_EQ(nearest("stack", keys), "stacks");
  EXPECT_EQ(nearest("mesure", keys), "measure");
  EXPECT_EQ(nearest("xyzzy", keys), "");
  EXPECT_EQ(nearest("anything", {}), "");
}

TEST(Strings, StrFormatHandlesAnyLength) {
  EXPECT_EQ(str_format("%d %s", 3, "x"), "3 x");
  const std::string longer(5000, 'y');
  EXPECT_EQ(str_format("%s!", longer.c_str()), longer + "!");
}

TEST(Strings, Utf8Validity) {
  EXPECT_TRUE(is_valid_utf8("plain"));
  EXPECT_TRUE(is_valid_utf8("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_FALSE(is_valid_utf8("\x80"));              // continuation without a lead
  EXPECT_FALSE(is_valid_utf8("\xC3"));              // cut off
  EXPECT_FALSE(is_valid_utf8("\xC0\xAF"));          // overlong '/'
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));      // surrogate
  EXPECT_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(is_valid_utf8("\xFF"));
}

}  // namespace
}  // namespace triptych
