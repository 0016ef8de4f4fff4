// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/split_patterns.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

bool matches(const std::string& pattern, const std::string& text) {
  return compile_tokenizer_pattern("^(?:" + pattern + ")$", "test")->search(text);
}

TEST(SplitPatterns, ClassesAreThoseOfTheReference) {
  EXPECT_TRUE(matches(R"(\s\s)", "\u0085\u3000"));
  EXPECT_FALSE(matches(R"(\s)", "\u180e"));
  EXPECT_TRUE(matches(R"([^\s])", "\u180e"));
  EXPECT_TRUE(matches(R"(\w+)", "a\u0301_7"));  // marks belong to words
  EXPECT_TRUE(matches(R"([\w-]+\W)", "a-b!"));
}

TEST(SplitPatterns, NameTheBadOne) {
  const auto regex = compile_tokenizer_pattern("(", "file");
  ASSERT_FALSE(regex.has_value());
  EXPECT_EQ(regex.error().where, "file");
  EXPECT_NE(regex.error().message.find("\"(\""), std::string::npos);
}

TEST(SplitPatterns, NumbersComeInTheGroupsOfTheirFamily) {
  const auto count = [](std::string_view pattern) {
    return compile_tokenizer_pattern(pattern, "test")->find_all("1234567").size();
  };
  EXPECT_EQ(count(kGpt2Pattern), 1u);
  EXPECT_EQ(count(kLlama3Pattern), 3u);
  EXPECT_EQ(count(kQwen2Pattern), 7u);
}

}  // namespace
}  // namespace triptych
