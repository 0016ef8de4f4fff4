// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/mapped_file.h"
#include "base/units.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/golden_ids.h"
#include "tests/support/model_path.h"

namespace triptych {
namespace {

GgufBuilder tokenizer_file() {
  GgufBuilder builder;
  builder.add("tokenizer.ggml.model", std::string_view("gpt2"))
      .add("tokenizer.ggml.pre", std::string_view("gpt-2"))
      .add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<s>", "<u>"})
      .add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 3, 4})
      .add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  return builder;
}

Result<std::shared_ptr<const Tokenizer>> load(const GgufBuilder& builder) {
  const std::string bytes = builder.build();
  TRIPTYCH_TRY(const Gguf file, Gguf::parse(std::as_bytes(std::span(bytes)), "test.gguf"));
  return load_gguf_tokenizer(file, 5);
}

Error error_of(const GgufBuilder& builder) {
  const auto tokenizer = load(builder);
  if (!tokenizer) return tokenizer.error();
  ADD_FAILURE() << "expected an error";
  return {};
}

TEST(GgufTokenizer, ReadsTokensMergesAndTypes) {
  const auto tokenizer = load(tokenizer_file());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode("ab<s>b<u>a"), (std::vector<int32_t>{2, 3, 1, 4, 0}));
}

/// "ab" is better than "bc", both are tokens; "d" is none but part of one.
GgufBuilder sentencepiece_file() {
  GgufBuilder builder;
  builder.add("tokenizer.ggml.model", std::string_view("llama"))
      .add("tokenizer.ggml.tokens",
           std::vector<std::string>{"<unk>", "<s>", "</s>", "<0x64>", "\u2581", "a", "b", "c", "ab",
                                    "bc", "cd", "\u2581ab"})
      .add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, 0, -9, -9, -9, -9, -1, -2, -3, -4})
      .add("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1});
  return builder;
}

Result<std::shared_ptr<const Tokenizer>> load_12(const GgufBuilder& builder) {
  const std::string bytes = builder.build();
  TRIPTYCH_TRY(const Gguf file, Gguf::parse(std::as_bytes(std::span(bytes)), "test.gguf"));
  return load_gguf_tokenizer(file, 12);
}

TEST(GgufTokenizer, MergesByScore) {
  const auto tokenizer = load_12(sentencepiece_file());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  using Ids = std::vector<int32_t>;
  EXPECT_EQ((*tokenizer)->encode("abc"), (Ids{11, 7}));
  EXPECT_EQ((*tokenizer)->encode("bc cd"), (Ids{4, 9, 4, 10}));
  EXPECT_EQ((*tokenizer)->encode("ad\u00e9"), (Ids{4, 5, 3, 0}));  // d as a byte, the rest unknown
  EXPECT_EQ((*tokenizer)->encode("a<s>a"), (Ids{4, 5, 1, 4, 5}));
  EXPECT_EQ((*tokenizer)->encode_with_special_tokens("a"), (Ids{1, 4, 5}));
  EXPECT_EQ((*tokenizer)->decode(Ids{11, 3}), "abd");
  EXPECT_EQ((*tokenizer)->decode_more(Ids{11, 3}), " abd");
}

TEST(GgufTokenizer, FollowsTheFlagsOfSentencePiece) {
  GgufBuilder builder = sentencepiece_file();
  builder.add("tokenizer.ggml.add_space_prefix", false)
      .add("tokenizer.ggml.add_bos_token", false)
      .add("tokenizer.ggml.add_eos_token", true);
  const auto tokenizer = load_12(builder);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode_with_special_tokens("a"), (std::vector<int32_t>{5, 2}));
}

TEST(GgufTokenizer, RefusesSentencePieceTablesThatDoNotFit) {
  const auto code = [](const GgufBuilder& builder) { return load_12(builder).error().code; };
  GgufBuilder builder = sentencepiece_file();
  EXPECT_EQ(code(builder.remove("tokenizer.ggml.scores")), ErrorCode::kCorrupt);
  builder.add("tokenizer.ggml.scores", std::vector<float>{0, 1});
  EXPECT_EQ(code(builder), ErrorCode::kCorrupt);
  builder.remove("tokenizer.ggml.scores")
      .add("tokenizer.ggml.scores", std::vector<float>(12, std::nanf("")));
  EXPECT_EQ(code(builder), ErrorCode::kCorrupt);
  builder = sentencepiece_file();
  EXPECT_EQ(code(builder.add("tokenizer.ggml.bos_token_id", uint32_t{12})), ErrorCode::kCorrupt);
  builder = sentencepiece_file();
  EXPECT_EQ(code(builder.add("tokenizer.ggml.unknown_token_id", uint32_t{12})),
            ErrorCode::kCorrupt);
  builder = sentencepiece_file();
  EXPECT_EQ(code(builder.add("tokenizer.ggml.remove_extra_whitespaces", true)),
            ErrorCode::kUnsupported);
}

TEST(GgufTokenizer, GivesTheIdsOfTheReferenceByScores) {
  const auto path = golden_dir() / "tokenizer" / "spm.gguf";
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.has_value()) << file.error().to_string();
  const auto gguf = Gguf::parse(file->bytes(), path.string());
  ASSERT_TRUE(gguf.has_value()) << gguf.error().to_string();
  const auto tokenizer = load_gguf_tokenizer(*gguf, 1 << 16);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  expect_golden_ids(**tokenizer, "spm_legacy");
}

TEST(GgufTokenizer, AFileWithoutOneGivesNull) {
  const auto tokenizer = load(GgufBuilder());
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(*tokenizer, nullptr);
}

TEST(GgufTokenizer, RefusesOtherKindsByName) {
  GgufBuilder builder = tokenizer_file();
  builder.remove("tokenizer.ggml.model").add("tokenizer.ggml.model", std::string_view("bert"));
  Error error = error_of(builder);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_NE(error.message.find("\"bert\""), std::string::npos) << error.message;

  builder = tokenizer_file();
  builder.remove("tokenizer.ggml.pre").add("tokenizer.ggml.pre", std::string_view("tekken"));
  error = error_of(builder);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_NE(error.message.find("\"tekken\", expected smollm"), std::string::npos) << error.message;
}

TEST(GgufTokenizer, RefusesTablesThatDoNotFit) {
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    GgufBuilder builder = tokenizer_file();
    builder.remove(key);
    const Error error = error_of(builder);
    EXPECT_EQ(error.code, ErrorCode::kCorrupt);
    EXPECT_NE(error.message.find(key), std::string::npos) << error.message;
  }
  GgufBuilder builder = tokenizer_file();
  builder.remove("tokenizer.ggml.token_type")
      .add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1});
  EXPECT_NE(error_of(builder).message.find("2 entries, expected one for each of 5 tokens"),
            std::string::npos);

  builder = tokenizer_file();
  builder.remove("tokenizer.ggml.tokens")
      .add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "c", "d", "e"});
  EXPECT_NE(error_of(builder).message.find("6 tokens, the embedding has 5 rows"),
            std::string::npos);
}

/// Loads `original` with bytes changed at random and encodes with what loads. Returns how many do.
int load_mutations(const std::string& original, int64_t vocab_size) {
  int accepted = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomStream random(seed);
    std::vector<char> bytes(original.begin(), original.end());
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    }
    const auto file = Gguf::parse(std::as_bytes(std::span(bytes)), "test.gguf");
    if (!file) continue;
    const auto tokenizer = load_gguf_tokenizer(*file, vocab_size);
    if (!tokenizer || *tokenizer == nullptr) continue;
    ++accepted;
    for (const int32_t id : (*tokenizer)->encode("ab<s>b<u>a d\u00e9\u2581\U0001F600")) {
      EXPECT_LT(id, vocab_size);
    }
  }
  return accepted;
}

TEST(GgufTokenizer, SurvivesRandomMutations) {
  EXPECT_GT(load_mutations(tokenizer_file().build(), 5), 0);
  EXPECT_GT(load_mutations(sentencepiece_file().build(), 12), 0);
}

TEST(GgufTokenizer, RefusesSpecialTokensThatAreNoText) {
  GgufBuilder builder = tokenizer_file();
  builder.remove("tokenizer.ggml.tokens")
      .add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "\xA9", "<u>"});
  EXPECT_EQ(error_of(builder).code, ErrorCode::kCorrupt);
}

class RealTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    TRIPTYCH_SKIP_WITHOUT_MODEL();
    auto file = MappedFile::open(model_path());
    ASSERT_TRUE(file.has_value()) << file.error().to_string();
    file_ = std::move(*file);
    const auto gguf = Gguf::parse(file_.bytes(), model_path().string());
    ASSERT_TRUE(gguf.has_value()) << gguf.error().to_string();
    const auto tokenizer = load_gguf_tokenizer(*gguf, 49152);
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
    tokenizer_ = *tokenizer;
  }
  MappedFile file_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(RealTokenizer, GivesTheIdsOfTheReference) {
  EXPECT_EQ(tokenizer_->vocab_size(), 49152);
  expect_golden_ids(*tokenizer_, "smollm2");
}

TEST_F(RealTokenizer, AgreesOnTextsWithInvalidBytes) {
  EXPECT_EQ(tokenizer_->encode("caf\xE9 \xF0\x9F"), tokenizer_->encode("caf\ufffd \ufffd"));
}

}  // namespace
}  // namespace triptych
