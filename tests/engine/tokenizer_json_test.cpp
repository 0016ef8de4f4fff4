// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/tokenizer.h"
#include "engine/tokenizer_json_parts.h"
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

class TokenizerParity : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerParity, GivesTheIdsOfTheReference) {
  const std::string name = GetParam();
  const auto path = golden_dir() / "tokenizer" / (name + ".json");
  const auto tokenizer = load_tokenizer_json(path.string());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  expect_golden_ids(**tokenizer, name);
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerParity,
                         testing::Values("byte_level", "spm_legacy", "spm_metaspace", "spm_always"),
                         [](const auto& test) { return std::string(test.param); });

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

Json plain_json() {
  return Json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "_"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<unk>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<unk>": {"id": "<unk>", "ids": [0], "tokens": ["<unk>"]}}},
    "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>",
              "vocab": {"<unk>": 0, "_": 1, "a": 2, "_a": 3, "<0xC3>": 4, "<0xA9>": 5},
              "merges": ["_ a"]}
  })");
}

TEST_F(TokenizerJson, ReadsPlainTextVocabularies) {
  const auto tokenizer = load(plain_json());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode("a a"), (Ids{3, 3}));
  EXPECT_EQ((*tokenizer)->encode("\u00e9a"), (Ids{1, 4, 5, 2}));
  EXPECT_EQ((*tokenizer)->encode("a\u00e8\u00e8a"), (Ids{3, 0, 2}));  // has no byte A8: one unknown
  EXPECT_EQ((*tokenizer)->encode("<unk>a"), (Ids{0, 3}));
  EXPECT_EQ((*tokenizer)->encode_with_special_tokens("a"), (Ids{0, 3}));
  EXPECT_EQ((*tokenizer)->decode(Ids{3, 4, 5, 1}), "a\u00e9 ");
  EXPECT_EQ((*tokenizer)->decode(Ids{3, 4}), "a\xC3");
  EXPECT_EQ((*tokenizer)->decode_more(Ids{3}), " a");
}

TEST_F(TokenizerJson, RefusesDecodersThatMultiply) {
  Json json = plain_json();
  const Json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  json["decoder"]["decoders"] = Json::array();
  for (int i = 0; i < 40; ++i) json["decoder"]["decoders"].push_back(twice);
  const auto tokenizer = load(json);
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(tokenizer.error().message.find("times as long"), std::string::npos);
}

TEST_F(TokenizerJson, UnknownCharactersAreFusedOrNot) {
  Json json = plain_json();
  json["model"]["fuse_unk"] = false;
  const auto tokenizer = load(json);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode("a\u00e8\u00e8a"), (Ids{3, 0, 0, 2}));
}

TEST_F(TokenizerJson, ReadsEveryPrependScheme) {
  Json json = plain_json();
  json["normalizer"] = nullptr;
  const auto ids = [&](const char* scheme) {
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", scheme}, {"split", false}};
    const auto tokenizer = load(json);
    EXPECT_TRUE(tokenizer.has_value());
    return (*tokenizer)->encode("a<unk>a");
  };
  EXPECT_EQ(ids("first"), (Ids{3, 0, 2}));
  EXPECT_EQ(ids("always"), (Ids{3, 0, 3}));
  EXPECT_EQ(ids("never"), (Ids{2, 0, 2}));
}

TEST_F(TokenizerJson, RefusesWhatPlainTextVocabulariesCannotHave) {
  const auto refused = [&](const char* pointer, const Json& value, const std::string& name) {
    Json json = plain_json();
    json[Json::json_pointer(pointer)] = value;
    const auto tokenizer = load(json);
    ASSERT_FALSE(tokenizer.has_value()) << pointer;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported) << pointer;
    EXPECT_NE(tokenizer.error().message.find(name), std::string::npos) << tokenizer.error().message;
  };
  refused("/decoder", {{"type", "ByteLevel"}}, "\"ByteLevel\"");
  refused("/decoder", {{"type", "WordPiece"}}, "\"WordPiece\"");
  refused("/decoder/decoders/0/pattern", {{"Regex", "a+"}}, "a+");
  refused("/decoder/decoders/3/content", "x", "\"x\"");
  refused("/decoder/decoders/3/stop", 2, "stop 2");
  refused("/decoder/decoders/2", {{"type", "Strip"}, {"content", " "}}, "\"Strip\"");
  refused("/post_processor", {{"type", "BertProcessing"}}, "\"BertProcessing\"");
  refused("/post_processor/single/0", {{"Sequence", {{"id", "A"}}}}, "2 sequences");
  refused("/normalizer/normalizers/0", {{"type", "Nmt"}}, "\"Nmt\"");
  refused("/pre_tokenizer",
          {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}}, "\"last\"");
  refused("/truncation", {{"max_length", 5}}, "truncation");
  refused("/padding", {{"pad_id", 0}}, "padding");
}

TEST_F(TokenizerJson, RefusesTemplatesThatNameUnknownTokens) {
  Json json = plain_json();
  json["post_processor"]["special_tokens"] = Json::object();
  EXPECT_EQ(load(json).error().code, ErrorCode::kCorrupt);
  json = plain_json();
  json["post_processor"]["special_tokens"]["<unk>"]["ids"] = {99};
  EXPECT_EQ(load(json).error().code, ErrorCode::kCorrupt);
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

TEST_F(TokenizerJson, ReadsPartsWithoutAModel) {
  BpeTables tables;
  const Json json = plain_json();
  ASSERT_TRUE(read_pre_tokenizer(json, tables).has_value());
  EXPECT_EQ(tables.alphabet, BpeAlphabet::kCharacters);
  ASSERT_TRUE(read_normalizer(json, tables).has_value());
  EXPECT_EQ(tables.normalizer.size(), 2u);
  ASSERT_TRUE(read_decoder(json, tables).has_value());
  EXPECT_EQ(tables.decoder.strip_start, 1);
  ASSERT_TRUE(read_post_processor(json, tables).has_value());
  EXPECT_EQ(tables.prefix, (Ids{0}));
}

TEST_F(TokenizerJson, SurvivesTruncation) {
  for (const std::string& text : {small_json().dump(), plain_json().dump()}) {
    for (size_t size = 0; size < text.size(); ++size) {
      const auto path = dir_.write("tokenizer.json", text.substr(0, size));
      EXPECT_FALSE(load_tokenizer_json(path.string()).has_value()) << size;
    }
  }
}

TEST_F(TokenizerJson, SaysThatAFileIsMissing) {
  const auto tokenizer = load_tokenizer_json((dir_.path() / "none.json").string());
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace triptych
