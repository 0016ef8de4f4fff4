// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/json.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(ParseJsonObject, RefusesWhatIsNoObject) {
  for (const char* text : {"", "{", "[1]", "3", "null", "{\"a\": 1e999}", "{\"a\": \"\xFF\"}"}) {
    const auto json = parse_json_object(text, "file");
    ASSERT_FALSE(json.has_value()) << text;
    EXPECT_EQ(json.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(json.error().where, "file");
  }
}

TEST(ParseJsonObject, RefusesDuplicateKeysAtAnyDepth) {
  EXPECT_TRUE(parse_json_object(R"({"a": {"b": 1}, "c": {"b": 1}, "b": 2})", "f").has_value());
  for (const char* text : {R"({"a": 1, "a": 2})", R"({"x": [{"a": 1, "b": {}, "a": 2}]})"}) {
    const auto json = parse_json_object(text, "f");
    ASSERT_FALSE(json.has_value()) << text;
    EXPECT_EQ(json.error().message, "key \"a\" appears twice in one object");
  }
}

TEST(ParseJsonObject, BoundsTheDepth) {
  const auto nested = [](size_t levels) {
    return "{\"a\": " + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_TRUE(parse_json_object(nested(kMaxJsonDepth), "f").has_value());
  // The last would exhaust the stack if it were copied or printed.
  for (const size_t levels : {size_t{kMaxJsonDepth} + 1, size_t{1} << 20}) {
    const auto json = parse_json_object(nested(levels), "f");
    ASSERT_FALSE(json.has_value()) << levels;
    EXPECT_EQ(json.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(json.error().message, "nests deeper than 64 levels");
  }
}

TEST(JsonLookups, GiveNothingForAbsentAndNull) {
  const Json json = Json::parse(R"({"n": null})");
  for (const char* key : {"n", "none"}) {
    EXPECT_EQ(*json_integer(json, key, "f"), std::nullopt);
    EXPECT_EQ(*json_number(json, key, "f"), std::nullopt);
    EXPECT_EQ(*json_boolean(json, key, "f"), std::nullopt);
    EXPECT_EQ(*json_string(json, key, "f"), std::nullopt);
    EXPECT_EQ(*json_member(json, key, Json::value_t::array, "f"), nullptr);
  }
}

TEST(JsonLookups, CheckTheType) {
  const Json json = Json::parse(
      R"({"i": -3, "u": 18446744073709551615, "d": 0.5, "b": true, "s": "x", "a": [], "o": {}})");
  EXPECT_EQ(*json_integer(json, "i", "f"), -3);
  EXPECT_EQ(*json_number(json, "i", "f"), -3.0);
  EXPECT_EQ(*json_number(json, "d", "f"), 0.5);
  EXPECT_EQ(*json_boolean(json, "b", "f"), true);
  EXPECT_EQ(*json_string(json, "s", "f"), "x");
  EXPECT_NE(*json_member(json, "o", Json::value_t::object, "f"), nullptr);
  EXPECT_FALSE(json_integer(json, "u", "f").has_value());
  EXPECT_FALSE(json_integer(json, "d", "f").has_value());
  EXPECT_FALSE(json_integer(json, "b", "f").has_value());
  EXPECT_FALSE(json_number(json, "s", "f").has_value());
  EXPECT_FALSE(json_boolean(json, "i", "f").has_value());
  EXPECT_FALSE(json_string(json, "i", "f").has_value());
  EXPECT_EQ(json_member(json, "o", Json::value_t::array, "f").error().message,
            "\"o\" is of type object, expected array");
  EXPECT_FALSE(json_integer(Json::array(), "i", "f").has_value());
}

}  // namespace
}  // namespace triptych
