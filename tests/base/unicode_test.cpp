// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/unicode.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/strings.h"

namespace triptych {
namespace {

TEST(Unicode, FormsOfTheStandardsOwnExamples) {
  // Figure 6 of Unicode Standard Annex 15: U+1E9B U+0323 in all four forms.
  const std::string text = "\u1e9b\u0323";
  EXPECT_EQ(normalize_unicode(text, UnicodeForm::kNfc), "\u1e9b\u0323");
  EXPECT_EQ(normalize_unicode(text, UnicodeForm::kNfd), "\u017f\u0323\u0307");
  EXPECT_EQ(normalize_unicode(text, UnicodeForm::kNfkc), "\u1e69");
  EXPECT_EQ(normalize_unicode(text, UnicodeForm::kNfkd), "s\u0323\u0307");
  EXPECT_EQ(normalize_unicode("A\u030a\u212b", UnicodeForm::kNfc), "\u00c5\u00c5");
  EXPECT_EQ(normalize_unicode("plain", UnicodeForm::kNfkd), "plain");
  EXPECT_EQ(normalize_unicode("", UnicodeForm::kNfc), "");
  // Bytes of value zero are text like any other.
  EXPECT_EQ(normalize_unicode(std::string("\0e\u0301", 4), UnicodeForm::kNfc),
            std::string("\0\u00e9", 3));
}

std::string random_text(uint64_t seed) {
  RandomStream random(seed);
  std::string text;
  for (uint64_t n = random.below(30); n > 0; --n) {
    char32_t point = static_cast<char32_t>(random.below(random.below(2) == 0 ? 0x500 : 0x110000));
    if (point >= 0xD800 && point < 0xE000) point = 0x301;
    text += encode_code_point(point);
  }
  return text;
}

TEST(Unicode, FormsAreStableAndAgreeWithEachOther) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string text = random_text(seed);
    ASSERT_TRUE(is_valid_utf8(text));
    const std::string nfc = normalize_unicode(text, UnicodeForm::kNfc);
    const std::string nfd = normalize_unicode(text, UnicodeForm::kNfd);
    EXPECT_EQ(normalize_unicode(nfc, UnicodeForm::kNfc), nfc);
    EXPECT_EQ(normalize_unicode(nfc, UnicodeForm::kNfd), nfd);
    EXPECT_EQ(normalize_unicode(nfd, UnicodeForm::kNfc), nfc);
  }
}

TEST(Unicode, CodePointsFromBothEnds) {
  for (const char32_t point : {U'a', U'\u00e9', U'\u2581', U'\U0001F600'}) {
    const std::string text = encode_code_point(point);
    const std::string padded = text + "x" + text;
    EXPECT_EQ(first_code_point(padded).value, point);
    EXPECT_EQ(last_code_point(padded).value, point);
    EXPECT_EQ(last_code_point(padded).length, text.size());
  }
}

TEST(Unicode, Properties) {
  for (const char32_t point : {U' ', U'\t', U'\u0085', U'\u00a0', U'\u2003', U'\u3000'}) {
    EXPECT_TRUE(is_white_space(point)) << static_cast<uint32_t>(point);
    EXPECT_FALSE(is_word_character(point)) << static_cast<uint32_t>(point);
  }
  for (const char32_t point : {U'a', U'7', U'_', U'\u00e9', U'\u0301', U'\u4e16', U'\u200d'}) {
    EXPECT_TRUE(is_word_character(point)) << static_cast<uint32_t>(point);
    EXPECT_FALSE(is_white_space(point)) << static_cast<uint32_t>(point);
  }
  for (const char32_t point : {U'-', U'\u2581', U'\u180e', U'\U0001F600'}) {
    EXPECT_FALSE(is_word_character(point) || is_white_space(point)) << static_cast<uint32_t>(point);
  }
}

}  // namespace
}  // namespace triptych
