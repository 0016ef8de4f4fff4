// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/tokenizer.h"
#include "tests/support/golden_ids.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

Json small_json() {
  return Json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "1": 3}, "merges": ["a b"]}
  })");
}

class TokenizerJson : public testing::Test {
 protected:
  Result<std::shared_ptr<const Tokenizer>> load(const Json& json) {
    return load_tokenizer_json(dir_.write("tokenizer.json", json.dump()).string());
  }
  Error error_of(const std::function<void(Json&)>& change) {
    Json json = small_json();
    change(json);
    const auto tokenizer = load(json);
    if (!tokenizer) return tokenizer.error();
    ADD_FAILURE() << "expected an error for " << json.dump();
    return {};
  }
  void expect_unsupported(const std::function<void(Json&)>& change, const std::string& name) {
    const Error error = error_of(change);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << error.message;
    EXPECT_NE(error.message.find(name), std::string::npos) << error.message;
  }
  TempDir dir_;
};

TEST_F(TokenizerJson, GivesTheIdsOfTheReference) {
  const auto path = golden_dir() / "tokenizer" / "own_tokenizer.json";
  const auto tokenizer = load_tokenizer_json(path.string());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->vocab_size(), 401);
  expect_golden_ids(**tokenizer, "own.jsonl");
}

TEST_F(TokenizerJson, ReadsBothFormsOfMerges) {
  Json json = small_json();
  for (const Json& merges : {Json{"a b"}, Json::array({Json::array({"a", "b"})})}) {
    json["model"]["merges"] = merges;
    const auto tokenizer = load(json);
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
    EXPECT_EQ((*tokenizer)->encode("ab<s>1"), (Ids{2, 4, 3}));
  }
}

TEST_F(TokenizerJson, AppliesSplitDigitsAndPrefixInOrder) {
  Json json = small_json();
  json["model"]["vocab"]["\u0120"] = 5;
  json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "b"}, "behavior": "Isolated", "invert": false},
      {"type": "Digits", "individual_digits": false},
      {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}]})");
  const auto tokenizer = load(json);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode("ab11"), (Ids{5, 0, 5, 1, 5, 3, 3}));
}

TEST_F(TokenizerJson, KnowsTheUnknownToken) {
  Json json = small_json();
  json["model"]["unk_token"] = "<s>";
  const auto tokenizer = load(json);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode("a?b"), (Ids{0, 4, 1}));
}

TEST_F(TokenizerJson, RefusesUnknownComponentsByName) {
  expect_unsupported([](Json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }, "\"Lowercase\"");
  expect_unsupported([](Json& j) { j["decoder"] = {{"type", "Metaspace"}}; }, "\"Metaspace\"");
  expect_unsupported([](Json& j) { j["decoder"] = nullptr; }, "no decoder");
  expect_unsupported(
      [](Json& j) {
        j["pre_tokenizer"] = {{"type", "Whitespace"}};
      },
      "\"Whitespace\"");
  expect_unsupported([](Json& j) { j["pre_tokenizer"] = nullptr; }, "decoder \"ByteLevel\"");
  expect_unsupported(
      [](Json& j) {
        j["pre_tokenizer"] = {
            {"type", "Split"}, {"behavior", "Removed"}, {"pattern", {{"Regex", "a"}}}};
      },
      "\"Removed\"");
  expect_unsupported([](Json& j) { j["model"]["type"] = "Unigram"; }, "\"Unigram\"");
  expect_unsupported([](Json& j) { j["model"]["byte_fallback"] = true; }, "byte_fallback");
  expect_unsupported([](Json& j) { j["model"]["dropout"] = 0.1; }, "dropout");
  expect_unsupported([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "</w>");
  expect_unsupported(
      [](Json& j) {
        j["pre_tokenizer"] = {
            {"type", "Sequence"},
            {"pretokenizers", {{{"type", "Sequence"}, {"pretokenizers", Json::array()}}}}};
      },
      "Sequence");
}

TEST_F(TokenizerJson, RefusesFilesThatContradictThemselves) {
  const std::vector<std::function<void(Json&)>> changes = {
      [](Json& j) { j["model"]["vocab"]["a"] = 1 << 30; },
      [](Json& j) { j["model"]["vocab"]["a"] = -1; },
      [](Json& j) { j["model"]["vocab"]["a"] = "0"; },
      [](Json& j) { j["model"]["vocab"]["a"] = 1; },
      [](Json& j) { j["model"]["vocab"][""] = 7; },
      [](Json& j) { j["model"]["vocab"] = Json::array(); },
      [](Json& j) { j["model"].erase("merges"); },
      [](Json& j) { j["model"]["merges"] = {"a c"}; },
      [](Json& j) { j["model"]["merges"] = {1}; },
      [](Json& j) { j["model"]["unk_token"] = "<none>"; },
      [](Json& j) { j["added_tokens"] = {1}; },
      [](Json& j) { j["added_tokens"][0].erase("id"); },
      [](Json& j) { j["added_tokens"][0]["id"] = 0; },
      [](Json& j) { j["pre_tokenizer"].erase("type"); },
  };
  for (const auto& change : changes) {
    const Error error = error_of(change);
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << error.message;
    EXPECT_NE(error.where.find("tokenizer.json"), std::string::npos);
  }
}

TEST_F(TokenizerJson, SurvivesTruncation) {
  const std::string text = small_json().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    const auto path = dir_.write("tokenizer.json", text.substr(0, size));
    EXPECT_FALSE(load_tokenizer_json(path.string()).has_value()) << size;
  }
}

TEST_F(TokenizerJson, SaysThatAFileIsMissing) {
  const auto tokenizer = load_tokenizer_json((dir_.path() / "none.json").string());
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace triptych
