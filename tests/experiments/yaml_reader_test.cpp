// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/yaml_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

namespace triptych {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

YamlValue parsed(std::string_view text) {
  auto value = parse_yaml(text, "t");
  TRIPTYCH_CHECK(value.has_value(), value.error().to_string());
  return std::move(*value);
}

TEST(YamlReader, IntegersAreDecimalAndInRange) {
  const auto accepts = [](std::string_view text, int64_t lowest, int64_t highest) {
    YamlReader reader("t", text);
    const int64_t value = reader.integer(parsed(text), "n", lowest, highest);
    return !reader.has_errors() && value == std::stoll(std::string(text));
  };
  EXPECT_TRUE(accepts("0", 0, 10));
  EXPECT_TRUE(accepts("10", 0, 10));
  EXPECT_TRUE(accepts("-10", -10, 10));
  EXPECT_TRUE(accepts("9223372036854775807", 0, kLargest));
  for (const std::string_view bad :
       {"11", "-1", "0x1", "1e3", "1.0", "01", "+1", "1_000", "'1'", "one", "~", "[1]", "{a: 1}",
        "9223372036854775808", "-9223372036854775809", "--1", "-"}) {
    YamlReader reader("t", bad);
    if (bad == "-") continue;  // an empty list item, not a scalar
    EXPECT_EQ(reader.integer(parsed(bad), "n", 0, 10), 0);
    EXPECT_TRUE(reader.has_errors()) << bad;
  }
}

TEST(YamlReader, OutOfRangeIsAnErrorEvenWithTheWidestRange) {
  YamlReader reader("t", "");
  EXPECT_EQ(reader.integer(parsed("true"), "n", 0, kLargest), 0);
  EXPECT_EQ(reader.error_count(), 1u);
}

TEST(YamlReader, BooleansAreTrueOrFalse) {
  YamlReader reader("t", "");
  EXPECT_TRUE(reader.boolean(parsed("true"), "b"));
  EXPECT_FALSE(reader.boolean(parsed("false"), "b"));
  EXPECT_FALSE(reader.has_errors());
  size_t expected = 0;
  for (const std::string_view bad : {"yes", "1", "'true'", "True", "~"}) {
    EXPECT_FALSE(reader.boolean(parsed(bad), "b"));
    EXPECT_EQ(reader.error_count(), ++expected) << bad;
  }
}

TEST(YamlReader, ErrorsComeInTheOrderOfTheFile) {
  YamlReader reader("f", "first\nsecond");
  reader.error({2, 3, {}}, "later", ErrorCode::kUnsupported);
  reader.error({1, 2, {}}, "earlier", ErrorCode::kNotFound);
  const Error error = reader.take_errors();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_EQ(error.to_string(),
            "f:1:2: earlier\n    first\n     ^\nf:2:3: later\n    second\n      ^");
  EXPECT_FALSE(reader.has_errors());
}

TEST(YamlReader, AtMostSoManyErrorsAreShown) {
  YamlReader reader("f", "");
  for (int i = 0; i < 25; ++i) reader.error({}, "wrong", ErrorCode::kInvalidArgument);
  EXPECT_TRUE(reader.take_errors().message.ends_with("\n5 more errors"));
}

TEST(YamlReader, UnknownAndDuplicateKeys) {
  constexpr std::array<std::string_view, 2> kKeys = {"blocks", "warmup"};
  YamlReader reader("f", "");
  EXPECT_TRUE(reader.mapping(parsed("{blocks: 1, blokcs: 2, warmup: 3, blocks: 4}"), "m", kKeys));
  const std::string text = reader.take_errors().to_string();
  EXPECT_EQ(text,
            "f:1:13: unknown key \"blokcs\" in m; did you mean \"blocks\"?\n"
            "f:1:35: duplicate key \"blocks\" in m; first given at line 1");
  EXPECT_FALSE(reader.mapping(parsed("[1]"), "m", kKeys));
}

TEST(YamlReader, LongTextIsCutBetweenCharacters) {
  YamlValue value;
  value.kind = YamlValue::Kind::kScalar;
  for (int i = 0; i < 50; ++i) value.text += "é";
  const std::string text = describe_value(value);
  EXPECT_EQ(text.size(), 60u + 5u) << text;  // quotes and dots around 30 two-byte characters
  value.text = "x" + value.text;
  EXPECT_EQ(describe_value(value).size(), 59u + 5u);
}

TEST(YamlReader, SuggestionNamesTheNearestOrAll) {
  constexpr std::array<std::string_view, 3> kWords = {"table", "csv", "json"};
  EXPECT_EQ(suggestion("tabel", kWords), "; did you mean \"table\"?");
  EXPECT_EQ(suggestion("spreadsheet", kWords), "; expected table, csv or json");
}

}  // namespace
}  // namespace triptych
