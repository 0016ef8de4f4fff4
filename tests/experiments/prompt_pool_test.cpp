// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/prompt_pool.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/strings.h"

namespace triptych {
namespace {

/// One token a byte.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) text += static_cast<char>(token);
    return text;
  }
  int64_t vocab_size() const override { return 256; }
};

ModelConfig config() {
  ModelConfig config;
  config.name = "test";
  config.vocab_size = 256;
  config.max_position = 1000;
  return config;
}

WorkloadSpec workload(int64_t prompt_tokens, int64_t requests) {
  WorkloadSpec spec;
  spec.prompt_tokens = prompt_tokens;
  spec.output_tokens = 5;
  spec.requests = requests;
  return spec;
}

PromptPool pool_of(std::string_view jsonl) {
  auto pool = parse_prompt_pool(jsonl, "pool.jsonl");
  TRIPTYCH_CHECK(pool.has_value(), pool.error().to_string());
  return std::move(*pool);
}

std::string error_of(std::string_view jsonl) {
  const auto pool = parse_prompt_pool(jsonl, "pool.jsonl");
  return pool.has_value() ? "accepted" : pool.error().to_string();
}

constexpr std::string_view kLetters = "{\"text\": \"abcdef\"}\n\n{\"text\": \"gh\"}\n";

TEST(PromptPool, ReadsTextAndTokenIds) {
  const PromptPool pool = pool_of("{\"text\": \"h\\u00e9\"}\r\n{\"token_ids\": [3, 0]}");
  ASSERT_EQ(pool.prompts.size(), 2u);
  EXPECT_EQ(pool.prompts[0].text, "hé");
  EXPECT_EQ(pool.prompts[1].token_ids, (std::vector<int32_t>{3, 0}));
  EXPECT_EQ(pool.prompts[1].line, 2);
  EXPECT_EQ(pool.hash.size(), 32u);
  EXPECT_NE(pool.hash, pool_of("{\"text\": \"x\"}").hash);
}

TEST(PromptPool, ErrorsNameTheLine) {
  EXPECT_EQ(error_of(""), "pool.jsonl: the prompt pool is empty");
  EXPECT_EQ(error_of("\n \n"), "pool.jsonl: the prompt pool is empty");
  EXPECT_EQ(error_of("{\"text\": \"a\"}\nhello"), "pool.jsonl:2: this line is not JSON");
  EXPECT_EQ(error_of("{\"txt\": \"a\"}"),
            "pool.jsonl:1: expected {\"text\": \"...\"} or {\"token_ids\": [...]}, found {\"txt\": "
            "\"a\"}");
  EXPECT_EQ(error_of("{\"text\": \" \"}"), "pool.jsonl:1: \"text\" is empty");
  EXPECT_EQ(error_of("{\"text\": 3}"), "pool.jsonl:1: \"text\" is not a string");
  EXPECT_EQ(error_of("{\"token_ids\": []}"),
            "pool.jsonl:1: \"token_ids\" is not a list of numbers");
  EXPECT_EQ(error_of("{\"token_ids\": [1, -2]}"),
            "pool.jsonl:1: \"token_ids\" holds -2, which is not a token id");
  EXPECT_EQ(error_of("{\"token_ids\": [99999999999]}"),
            "pool.jsonl:1: \"token_ids\" holds 99999999999, which is not a token id");
  EXPECT_EQ(error_of("{\"token_ids\": [1.5]}"),
            "pool.jsonl:1: \"token_ids\" holds 1.5, which is not a token id");
  EXPECT_EQ(error_of("{\"text\": \"a\", \"token_ids\": [1]}").substr(0, 22),
            "pool.jsonl:1: expected");
  EXPECT_EQ(error_of("{\"text\": \"\xff\"}"), "pool.jsonl:1: this line is not UTF-8 text");
  EXPECT_EQ(error_of("{\"text\": \"a\"} {\"text\": \"b\"}"), "pool.jsonl:1: this line is not JSON");
  const std::string deep(1 << 20, '[');  // would exhaust the stack if it were printed
  EXPECT_EQ(error_of("{\"token_ids\": [" + deep + std::string(1 << 20, ']') + "]}"),
            "pool.jsonl:1: \"token_ids\" holds a list or an object, which is not a token id");
  EXPECT_EQ(error_of(std::string(100000, '[')), "pool.jsonl:1: this line is not JSON");
}

TEST(PromptPool, MissingFileIsNotFound) {
  const auto pool = load_prompt_pool("no/such/pool.jsonl");
  ASSERT_FALSE(pool.has_value());
  EXPECT_EQ(pool.error().code, ErrorCode::kNotFound);
}

TEST(BuildRequests, CutsAndContinuesInPoolOrder) {
  const ByteTokenizer tokenizer;
  const auto built = build_requests(pool_of(kLetters), &tokenizer, config(), workload(8, 3));
  ASSERT_TRUE(built.has_value()) << built.error().to_string();
  EXPECT_FALSE(built->synthetic_tokens);
  ASSERT_EQ(built->requests.size(), 3u);
  EXPECT_EQ(tokenizer.decode(built->requests[0].prompt), "abcdef\ng");
  EXPECT_EQ(tokenizer.decode(built->requests[1].prompt), "gh\nabcde");
  EXPECT_EQ(built->requests[2].prompt, built->requests[0].prompt) << "the pool starts again";
  EXPECT_EQ(built->requests[0].max_new_tokens, 5);
  const auto cut = build_requests(pool_of(kLetters), &tokenizer, config(), workload(3, 1));
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(tokenizer.decode(cut->requests[0].prompt), "abc");
}

/// Cells of different concurrency and prompt length must read the same prompts.
TEST(BuildRequests, MoreRequestsAndLongerPromptsExtend) {
  const ByteTokenizer tokenizer;
  const PromptPool pool = pool_of(kLetters);
  const auto few = build_requests(pool, &tokenizer, config(), workload(20, 2));
  const auto many = build_requests(pool, &tokenizer, config(), workload(50, 7));
  ASSERT_TRUE(few.has_value() && many.has_value());
  for (size_t i = 0; i < few->requests.size(); ++i) {
    const auto& shorter = few->requests[i].prompt;
    const auto& longer = many->requests[i].prompt;
    EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longer.begin()));
  }
}

TEST(BuildRequests, WithoutATokenizerWordsAreHashed) {
  const PromptPool pool = pool_of("{\"text\": \"the cat and the dog\"}\n{\"token_ids\": [7, 8]}");
  const auto built = build_requests(pool, nullptr, config(), workload(7, 1));
  ASSERT_TRUE(built.has_value()) << built.error().to_string();
  EXPECT_TRUE(built->synthetic_tokens);
  const auto& ids = built->requests[0].prompt;
  EXPECT_EQ(ids[0], ids[3]) << "the same word is the same token";
  EXPECT_EQ(std::set<int32_t>({ids[0], ids[1], ids[2], ids[4]}).size(), 4u);
  EXPECT_EQ(ids[5], 7);
  for (const int32_t id : ids) EXPECT_LT(id, 256);
  const auto only_ids =
      build_requests(pool_of("{\"token_ids\": [7]}"), nullptr, config(), workload(7, 1));
  ASSERT_TRUE(only_ids.has_value());
  EXPECT_FALSE(only_ids->synthetic_tokens);
}

TEST(BuildRequests, RefusesWhatTheModelCannotRead) {
  const PromptPool pool = pool_of("{\"text\": \"a\"}\n{\"token_ids\": [1, 256]}");
  const auto outside = build_requests(pool, nullptr, config(), workload(4, 1));
  ASSERT_FALSE(outside.has_value());
  EXPECT_EQ(outside.error().to_string(),
            "pool.jsonl:2: token id 256 is outside the model's vocabulary of 256");
  const auto long_prompt = build_requests(pool_of(kLetters), nullptr, config(), workload(996, 1));
  ASSERT_FALSE(long_prompt.has_value());
  EXPECT_EQ(long_prompt.error().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(build_requests(pool_of(kLetters), nullptr, config(), workload(995, 1)).has_value());
}

/// The prompts that ship: short questions and creative tasks, all different.
TEST(BuildRequests, PromptsThatFillTheMachineAreRefused) {
  const auto pool = parse_prompt_pool("{\"token_ids\": [1]}", "p.jsonl");
  ASSERT_TRUE(pool.has_value());
  WorkloadSpec workload;
  workload.prompt_tokens = int64_t{1} << 40;  // 8 TiB of ids a request
  workload.output_tokens = 1;
  workload.requests = 4096;
  ModelConfig config;  // without a limit on positions
  config.vocab_size = 8;
  const auto requests = build_requests(*pool, nullptr, config, workload);
  ASSERT_FALSE(requests.has_value());
  EXPECT_EQ(requests.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(requests.error().message.find("4096 requests of 1099511627776 tokens are 33600000 GiB"),
            std::string::npos)
      << requests.error().message;
}

TEST(PromptPool, ShippedPoolIsShortAndVaried) {
  const auto pool = load_prompt_pool(std::filesystem::path(TRIPTYCH_SOURCE_DIR) / "experiments" /
                                     "prompts" / "qa.jsonl");
  ASSERT_TRUE(pool.has_value()) << pool.error().to_string();
  EXPECT_GE(pool->prompts.size(), 24u);
  std::set<std::string> texts;
  size_t words = 0;
  for (const Prompt& prompt : pool->prompts) {
    texts.insert(prompt.text);
    words += split(prompt.text, ' ').size();
  }
  EXPECT_EQ(texts.size(), pool->prompts.size());
  const double mean = static_cast<double>(words) / static_cast<double>(pool->prompts.size());
  EXPECT_GT(mean, 12.0);
  EXPECT_LT(mean, 25.0);
}

}  // namespace
}  // namespace triptych
