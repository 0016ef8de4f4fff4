// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/normalizer.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

using Kind = NormalizerStep::Kind;

std::string apply(const std::vector<NormalizerStep>& steps, const std::string& text) {
  const auto normalizer = Normalizer::make(steps, "test");
  EXPECT_TRUE(normalizer.has_value());
  return normalizer->apply(text);
}

TEST(Normalizer, AppliesStepsInOrder) {
  const NormalizerStep prepend{.kind = Kind::kPrepend, .content = " "};
  const NormalizerStep replace{.kind = Kind::kReplace, .pattern = " ", .content = "__"};
  EXPECT_EQ(apply({prepend, replace}, "a b"), "__a__b");
  EXPECT_EQ(apply({replace, prepend}, "a b"), " a__b");
  EXPECT_EQ(apply({prepend}, ""), "");
  EXPECT_EQ(apply({}, "a"), "a");
}

TEST(Normalizer, ReplacesWhatARegularExpressionMatches) {
  const NormalizerStep step{.kind = Kind::kReplaceRegex, .pattern = R"(\s{2,}|x*)", .content = "-"};
  EXPECT_EQ(apply({step}, "a  b c\u00a0 xx"), "a-b c--");
  EXPECT_EQ(apply({step}, "abc"), "abc");  // empty matches replace nothing
}

TEST(Normalizer, ComposesBeforeWhatFollows) {
  const NormalizerStep compose{.kind = Kind::kNfc};
  const NormalizerStep replace{.kind = Kind::kReplace, .pattern = "\u00e9", .content = "!"};
  EXPECT_EQ(apply({compose, replace}, "e\u0301"), "!");
  EXPECT_EQ(apply({replace, compose}, "e\u0301"), "\u00e9");
}

TEST(Normalizer, RefusesReplacementsThatMultiply) {
  const NormalizerStep twice{.kind = Kind::kReplace, .pattern = "a", .content = "aa"};
  const NormalizerStep by_regex{.kind = Kind::kReplaceRegex, .pattern = "a", .content = "aa"};
  EXPECT_EQ(Normalizer::make(std::vector(10, twice), "file").value().apply("a").size(), 1024U);
  for (const NormalizerStep& step : {twice, by_regex}) {
    const auto refused = Normalizer::make(std::vector(40, step), "file");
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(refused.error().to_string(),
              "file: its replacements can make a text more than 1024 times as long");
  }
}

TEST(Normalizer, NamesTheFileOfABadPattern) {
  const NormalizerStep step{.kind = Kind::kReplaceRegex, .pattern = "(", .content = ""};
  const auto normalizer = Normalizer::make(std::vector{step}, "test");
  ASSERT_FALSE(normalizer.has_value());
  EXPECT_EQ(normalizer.error().where, "test");
}

TEST(Normalizer, ReplaceAllGoesFromTheLeft) {
  EXPECT_EQ(replace_all("aaa", "aa", "b"), "ba");
  EXPECT_EQ(replace_all("abab", "b", ""), "aa");
  EXPECT_EQ(replace_all("ab", "", "x"), "ab");
}

}  // namespace
}  // namespace triptych
