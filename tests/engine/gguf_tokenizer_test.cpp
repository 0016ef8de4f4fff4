// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/gguf_tokenizer.h"

#include <gtest/gtest.h>

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

TEST(GgufTokenizer, AFileWithoutOneGivesNull) {
  const auto tokenizer = load(GgufBuilder());
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(*tokenizer, nullptr);
}

TEST(GgufTokenizer, RefusesOtherKindsByName) {
  GgufBuilder builder = tokenizer_file();
  builder.remove("tokenizer.ggml.model").add("tokenizer.ggml.model", std::string_view("llama"));
  Error error = error_of(builder);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_NE(error.message.find("\"llama\""), std::string::npos) << error.message;

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

TEST(GgufTokenizer, SurvivesRandomMutations) {
  const std::string original = tokenizer_file().build();
  int accepted = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomStream random(seed);
    std::vector<char> bytes(original.begin(), original.end());
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    }
    const auto file = Gguf::parse(std::as_bytes(std::span(bytes)), "test.gguf");
    if (!file) continue;
    const auto tokenizer = load_gguf_tokenizer(*file, 5);
    if (!tokenizer || *tokenizer == nullptr) continue;
    ++accepted;
    for (const int32_t id : (*tokenizer)->encode("ab<s>b<u>a")) ASSERT_LT(id, 5);
  }
  EXPECT_GT(accepted, 0);
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
  expect_golden_ids(*tokenizer_, "smollm2.jsonl");
}

TEST_F(RealTokenizer, AgreesOnTextsWithInvalidBytes) {
  EXPECT_EQ(tokenizer_->encode("caf\xE9 \xF0\x9F"), tokenizer_->encode("caf\ufffd \ufffd"));
}

}  // namespace
}  // namespace triptych
