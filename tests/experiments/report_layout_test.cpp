// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/random.h"
#include "experiments/report_render.h"

namespace triptych {
namespace {

TEST(WrapText, BreaksAtSpaces) {
  EXPECT_EQ(wrap_text("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap_text("", 7), (std::vector<std::string>{""}));
  EXPECT_EQ(wrap_text("a\nb", 7), (std::vector<std::string>{"a b"}));
  EXPECT_EQ(wrap_text("abcdefghij", 4), (std::vector<std::string>{"abcd", "efgh", "ij"}));
}

TEST(WrapText, KeepsEveryWordWithinTheWidth) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(seed);
    std::string text;
    std::string letters;
    for (int i = 0; i < 60; ++i) {
      const bool space = random.below(4) == 0;
      // "\xC3\xA9" is one character of two bytes.
      const std::string letter = random.below(3) == 0 ? "\xC3\xA9" : "x";
      text += space ? " " : letter;
      if (!space) letters += letter;
    }
    std::string joined;
    for (const std::string& line : wrap_text(text, 7)) {
      EXPECT_LE(display_width(line), 7U) << line;
      for (const char c : line) joined += c == ' ' ? "" : std::string(1, c);
    }
    EXPECT_EQ(joined, letters);
  }
}

TEST(Markdown, BarsAreCodeAndPipesAreEscaped) {
  DocumentBlock block;
  block.kind = DocumentBlock::Kind::kTable;
  block.table.columns = {"name", "bar"};
  block.table.numeric = {false, false};
  block.table.rows = {{"  a|b", "[## ]"}, {std::nullopt, "[x]"}};
  EXPECT_EQ(render_markdown({block}),
            "\n| name | bar |\n| --- | --- |\n| &nbsp;&nbsp;a\\|b | `[## ]` |\n| - | [x] |\n");
}

TEST(Terminal, FieldsAreWrappedBesideTheirName) {
  DocumentBlock block;
  block.kind = DocumentBlock::Kind::kFields;
  block.table.rows = {{"ab", std::string(60, 'x') + " " + std::string(60, 'y')}, {"c", "z"}};
  EXPECT_EQ(render_terminal({block}),
            "ab  " + std::string(60, 'x') + "\n    " + std::string(60, 'y') + "\nc   z\n");
}

}  // namespace
}  // namespace triptych
