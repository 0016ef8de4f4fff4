// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "base/random.h"
#include "base/units.h"

namespace triptych {
namespace {

using Matches = std::vector<std::pair<size_t, size_t>>;

Regex compile(std::string_view pattern) {
  auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.has_value()) << pattern;
  return std::move(*regex);
}

TEST(Regex, ReportsTheOffsetOfAFault) {
  const auto regex = Regex::compile("ab(c");
  ASSERT_FALSE(regex.has_value());
  EXPECT_EQ(regex.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(regex.error().message.find("offset 4"), std::string::npos) << regex.error().message;
}

TEST(Regex, RefusesPartsOfCharacters) {
  const auto regex = Regex::compile("a\\C");
  ASSERT_FALSE(regex.has_value());
  EXPECT_EQ(regex.error().code, ErrorCode::kInvalidArgument);
}

TEST(Regex, KnowsUnicodeClasses) {
  EXPECT_TRUE(compile(R"(^\p{L}+$)").search("\u00e9\u4e16\u0416"));
  EXPECT_FALSE(compile(R"(^\p{L}+$)").search("a1"));
  EXPECT_TRUE(compile(R"(^\p{N}$)").search("\u0663"));
}

TEST(Regex, FindsFromAnOffset) {
  const Regex regex = compile("a+");
  EXPECT_EQ(regex.find("baab", 0), (std::pair<size_t, size_t>{1, 3}));
  EXPECT_EQ(regex.find("baab", 2), (std::pair<size_t, size_t>{2, 3}));
  EXPECT_EQ(regex.find("baab", 3), std::nullopt);
}

TEST(Regex, NeverMatchesWhatIsNotUtf8) {
  const Regex regex = compile("a");
  EXPECT_FALSE(regex.search("a\xFF"));
  EXPECT_FALSE(regex.find("a\xC3", 0).has_value());
  EXPECT_TRUE(regex.find_all("a\xE2\x82").empty());
}

TEST(Regex, FindsAllMatchesInOrder) {
  EXPECT_EQ(compile("[0-9]+").find_all("1a22b333"), (Matches{{0, 1}, {2, 4}, {5, 8}}));
  EXPECT_TRUE(compile("x").find_all("").empty());
  // An empty match goes on after one whole code point.
  EXPECT_EQ(compile("").find_all("a\u00e9"), (Matches{{0, 0}, {1, 1}, {3, 3}}));
  EXPECT_EQ(compile("b*").find_all("abb"), (Matches{{0, 0}, {1, 3}, {3, 3}}));
}

TEST(Regex, FindAllAgreesWithFindInALoop) {
  const Regex regex = compile(R"( ?\p{L}+| ?\p{N}+|\s+(?!\S)|\s+)");
  const std::string alphabet[] = {"a", "\u4e16", "7", " ", "\n", "-", "\u00e9"};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(seed);
    std::string text;
    for (uint64_t i = random.below(40); i > 0; --i) text += alphabet[random.below(7)];
    Matches expected;
    size_t offset = 0;
    while (const auto found = regex.find(text, offset)) {
      expected.push_back(*found);
      offset = found->second;
    }
    ASSERT_EQ(regex.find_all(text), expected) << text;
  }
}

TEST(Regex, SurvivesPatternsThatNeedMuchState) {
  // More than the stack of the just-in-time code; the interpreter takes over.
  const Regex regex = compile("^(?:a|b)+$");
  EXPECT_TRUE(regex.search(std::string(20000, 'a')));
}

TEST(Regex, IsSafeToShareBetweenThreads) {
  const Regex regex = compile(R"(\p{L}+)");
  std::vector<std::thread> threads;
  std::vector<size_t> counts(4);
  for (size_t t = 0; t < counts.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) counts[t] += regex.find_all("one two three").size();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts, std::vector<size_t>(4, 1500));
}

TEST(Regex, TakesTimeLinearInTheLengthOfTheText) {
  const Regex regex = compile(R"(\w+)");
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "ab ";
  const int64_t start = now_ns();
  EXPECT_EQ(regex.find_all(text).size(), 200000u);
  // A quadratic search checks 6e5 bytes 2e5 times, minutes; a linear one takes some 20 ms.
  EXPECT_LT(now_ns() - start, int64_t{10} * 1000 * 1000 * 1000);
}

}  // namespace
}  // namespace triptych
