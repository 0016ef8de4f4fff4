// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/added_tokens.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

/// Parts as text: "a|[3]<x>|b".
std::string cut(const AddedTokenMatcher& matcher, const std::string& text) {
  std::string shown;
  for (const TextPart& part : matcher.cut(text)) {
    if (!shown.empty()) shown += "|";
    if (part.token) shown += "[" + std::to_string(*part.token) + "]";
    shown += text.substr(part.begin, part.end - part.begin);
  }
  return shown;
}

TEST(AddedTokens, TheLeftmostLongestWins) {
  AddedTokenMatcher matcher;
  EXPECT_TRUE(matcher.empty());
  matcher.add("ab", {.id = 1});
  matcher.add("abc", {.id = 2});
  matcher.add("bcd", {.id = 3});
  matcher.add("ab", {.id = 4});
  EXPECT_EQ(cut(matcher, "xabcd ab"), "x|[2]abc|d |[1]ab");
  EXPECT_EQ(cut(matcher, "bcd"), "[3]bcd");
  EXPECT_EQ(cut(matcher, "none"), "none");
  EXPECT_EQ(cut(matcher, ""), "");
}

TEST(AddedTokens, StripsWhiteSpaceOnTheSideThatIsAsked) {
  AddedTokenMatcher matcher;
  matcher.add("<l>", {.id = 1, .lstrip = true});
  matcher.add("<r>", {.id = 2, .rstrip = true});
  EXPECT_EQ(cut(matcher, "a \u2003<l> b"), "a|[1] \u2003<l>| b");
  EXPECT_EQ(cut(matcher, "a <r>\n b"), "a |[2]<r>\n |b");
  EXPECT_EQ(cut(matcher, "<r>  <l>"), "[2]<r>  |[1]<l>");  // the first has taken the spaces
}

TEST(AddedTokens, SingleWordsDoNotTouchLetters) {
  AddedTokenMatcher matcher;
  matcher.add("tok", {.id = 1, .single_word = true});
  EXPECT_EQ(cut(matcher, "tok"), "[1]tok");
  EXPECT_EQ(cut(matcher, "-tok."), "-|[1]tok|.");
  EXPECT_EQ(cut(matcher, "tokens"), "tokens");
  EXPECT_EQ(cut(matcher, "\u00e9tok"), "\u00e9tok");
  EXPECT_EQ(cut(matcher, "atok tok"), "atok |[1]tok");
}

}  // namespace
}  // namespace triptych
