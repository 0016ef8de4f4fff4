// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/base64.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace triptych {
namespace {

std::string encode(std::string_view text) {
  return encode_base64(std::as_bytes(std::span(text.data(), text.size())));
}

// The vectors of RFC 4648, section 10.
TEST(Base64, VectorsOfTheStandard) {
  EXPECT_EQ(encode(""), "");
  EXPECT_EQ(encode("f"), "Zg==");
  EXPECT_EQ(encode("fo"), "Zm8=");
  EXPECT_EQ(encode("foo"), "Zm9v");
  EXPECT_EQ(encode("foob"), "Zm9vYg==");
  EXPECT_EQ(encode("fooba"), "Zm9vYmE=");
  EXPECT_EQ(encode("foobar"), "Zm9vYmFy");
}

TEST(Base64, DecodingUndoesEncoding) {
  RandomStream random(3);
  for (size_t size = 0; size < 200; ++size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const auto back = decode_base64(encode_base64(bytes));
    ASSERT_TRUE(back.has_value()) << size;
    EXPECT_EQ(*back, bytes);
  }
}

TEST(Base64, RefusesWhatIsNot) {
  for (const char* text :
       {"Z", "Zg", "Zg=", "Zg==Zg==x", "Z===", "====", "Zm9!", "Zm 9", "Zg==Zg=="}) {
    EXPECT_FALSE(decode_base64(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace triptych
