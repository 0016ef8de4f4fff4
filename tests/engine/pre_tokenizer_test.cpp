// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "engine/split_patterns.h"

namespace triptych {
namespace {

using Kind = PreTokenizerStep::Kind;
using Prepend = PreTokenizerStep::Prepend;

std::vector<std::string> cut(const std::vector<PreTokenizerStep>& steps, const std::string& text,
                             bool at_start = true) {
  const auto pre_tokenizer = PreTokenizer::make(steps, "test");
  EXPECT_TRUE(pre_tokenizer.has_value());
  std::vector<std::string> texts;
  const Pieces pieces = pre_tokenizer->cut(text, at_start);
  for (const Pieces::Piece& piece : pieces.list) texts.emplace_back(piece.text);
  return texts;
}

PreTokenizerStep metaspace(Prepend prepend, bool split) {
  return {.kind = Kind::kMetaspace, .pattern = "\u2581", .prepend = prepend, .split = split};
}
using Texts = std::vector<std::string>;

TEST(PreTokenizer, KeepsMatchesAndGaps) {
  EXPECT_EQ(cut({{.pattern = "[0-9]"}}, "a12b"), (Texts{"a", "1", "2", "b"}));
  EXPECT_EQ(cut({{.pattern = std::string(kGpt2Pattern)}}, "I'm  here"),
            (Texts{"I", "'m", " ", " here"}));
  EXPECT_TRUE(cut({{.pattern = "a"}}, "").empty());
}

TEST(PreTokenizer, MetaspaceCutsBeforeEachSpace) {
  EXPECT_EQ(cut({metaspace(Prepend::kAlways, true)}, "a  b "),
            (Texts{"\u2581a", "\u2581", "\u2581b", "\u2581"}));
  EXPECT_EQ(cut({metaspace(Prepend::kAlways, true)}, " a"), (Texts{"\u2581a"}));
  EXPECT_EQ(cut({metaspace(Prepend::kNever, true)}, "a b"), (Texts{"a", "\u2581b"}));
  EXPECT_EQ(cut({metaspace(Prepend::kAlways, false)}, "a b"), (Texts{"\u2581a\u2581b"}));
}

TEST(PreTokenizer, PrependsFirstOnlyAtTheStart) {
  EXPECT_EQ(cut({metaspace(Prepend::kFirst, false)}, "a"), (Texts{"\u2581a"}));
  EXPECT_EQ(cut({metaspace(Prepend::kFirst, false)}, "a", false), (Texts{"a"}));
  // Pieces after the first do not start where the text starts.
  EXPECT_EQ(cut({{.pattern = "x"}, metaspace(Prepend::kFirst, false)}, "axb"),
            (Texts{"\u2581a", "x", "b"}));
}

}  // namespace
}  // namespace triptych
