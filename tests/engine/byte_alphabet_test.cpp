// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "base/strings.h"

namespace triptych {
namespace {

TEST(ByteAlphabet, MapsEveryByteThereAndBack) {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = encode_byte(static_cast<uint8_t>(byte));
    EXPECT_TRUE(is_valid_utf8(text));
    EXPECT_TRUE(seen.insert(text).second) << byte;
    EXPECT_EQ(decode_alphabet(text), std::string(1, static_cast<char>(byte)));
  }
}

TEST(ByteAlphabet, AgreesWithKnownCharacters) {
  EXPECT_EQ(encode_byte('a'), "a");
  EXPECT_EQ(encode_byte(' '), "\u0120");
  EXPECT_EQ(encode_byte('\n'), "\u010a");
  EXPECT_EQ(encode_byte(0xAD), "\u0143");
  EXPECT_EQ(decode_alphabet("\u0120the"), " the");
}

TEST(ByteAlphabet, RefusesCharactersOutside) {
  EXPECT_EQ(decode_alphabet("a b"), std::nullopt);
  EXPECT_EQ(decode_alphabet("\u0144"), std::nullopt);
  EXPECT_EQ(decode_alphabet("\u4e16"), std::nullopt);
  EXPECT_EQ(decode_alphabet("\xC4"), std::nullopt);
}

// The expected texts are those of Python's bytes.decode("utf-8", errors="replace").
TEST(ReplaceInvalidUtf8, ReplacesMaximalParts) {
  EXPECT_EQ(replace_invalid_utf8("plain \u00e9 \U0001F600"), "plain \u00e9 \U0001F600");
  EXPECT_EQ(replace_invalid_utf8("a\xFF"
                                 "b"),
            "a\ufffdb");
  EXPECT_EQ(replace_invalid_utf8("\xC3"), "\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), "\ufffd");  // one truncated sequence
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"
                                 "x"),
            "\ufffdx");
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\x80"), "\ufffd\ufffd\ufffd");  // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\ufffd\ufffd\ufffd");  // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), "\ufffd\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82\xE2\x82\xAC"), "\ufffd\u20ac");
}

TEST(ReplaceInvalidUtf8, GivesUtf8ForAnyBytesAndKeepsUtf8) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    RandomStream random(seed);
    std::string bytes;
    for (uint64_t i = random.below(16); i > 0; --i) {
      // Bytes from 0x70 up: sequences that begin well are frequent.
      bytes += static_cast<char>(0x70 + random.below(0x90));
    }
    const std::string clean = replace_invalid_utf8(bytes);
    ASSERT_TRUE(is_valid_utf8(clean));
    ASSERT_EQ(clean == bytes, is_valid_utf8(bytes));
    ASSERT_EQ(replace_invalid_utf8(clean), clean);
  }
}

}  // namespace
}  // namespace triptych
