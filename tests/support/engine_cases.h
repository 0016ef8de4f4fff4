// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What every engine must do with odd requests, whatever its device.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/support/record_sink.h"

namespace triptych {

/// Makes an engine of a model for sequences of at most kCaseSequence tokens.
using CaseEngine = std::function<std::unique_ptr<Engine>(std::shared_ptr<const ModelWeights>)>;
inline constexpr int64_t kCaseSequence = 64;

struct BadRequest {
  Request request;
  ErrorCode code;
  std::string text;
};

inline std::vector<BadRequest> bad_requests(int32_t vocab_size) {
  const std::string last = std::to_string(vocab_size - 1);
  return {
      {{.prompt = {}, .max_new_tokens = 1},
       ErrorCode::kInvalidArgument,
       "request 1: prompt: empty"},
      {{.prompt = {0, vocab_size}, .max_new_tokens = 1},
       ErrorCode::kInvalidArgument,
       "request 1: prompt: token 1 is " + std::to_string(vocab_size) + ", expected 0 to " + last},
      {{.prompt = {-1}, .max_new_tokens = 1}, ErrorCode::kInvalidArgument, "token 0 is -1"},
      {{.prompt = {1}, .max_new_tokens = 0}, ErrorCode::kInvalidArgument, "max_new_tokens is 0"},
      {{.prompt = std::vector<int32_t>(60, 1), .max_new_tokens = 5},
       ErrorCode::kOutOfMemory,
       "60 prompt + 5 output tokens, but the engine was made for sequences of at most 64"},
      {{.prompt = {1}, .max_new_tokens = 1, .arrival_ns = -1},
       ErrorCode::kInvalidArgument,
       "arrival_ns is -1"},
      {{.prompt = {1}, .max_new_tokens = INT64_MAX}, ErrorCode::kOutOfMemory, "at most 64"}};
}

/// `engine` is one for kCaseSequence tokens.
inline void expect_bad_requests_leave_nothing_half_done(Engine& engine, int32_t vocab_size) {
  const Request good{.prompt = {1, 2}, .max_new_tokens = 3};
  for (const BadRequest& bad : bad_requests(vocab_size)) {
    RecordSink sink;
    const auto result = engine.generate(std::vector<Request>{good, bad.request}, &sink);
    ASSERT_FALSE(result) << bad.text;
    EXPECT_EQ(result.error().code, bad.code);
    EXPECT_THAT(result.error().message, ::testing::HasSubstr(bad.text));
    EXPECT_TRUE(sink.phases().empty());
    EXPECT_TRUE(sink.records().empty());
  }
  const Request full{.prompt = std::vector<int32_t>(60, 1), .max_new_tokens = 4};
  EXPECT_TRUE(engine.generate({&full, 1}, nullptr));

  const auto never = [](int64_t, std::span<const float>) { FAIL(); };
  EXPECT_EQ(engine.score({}, 1, never).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine.score(std::vector<int32_t>{vocab_size}, 1, never).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine.score(std::vector<int32_t>(65, 1), 65, never).error().code,
            ErrorCode::kOutOfMemory);
  for (const int64_t prefill : {-1, 0, 4}) {
    EXPECT_EQ(engine.score(std::vector<int32_t>(3, 1), prefill, never).error().code,
              ErrorCode::kInvalidArgument);
  }
}

inline void expect_no_requests_are_an_empty_result(Engine& engine) {
  const auto result = engine.generate({}, nullptr);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->requests.empty());
  EXPECT_EQ(result->decode_steps, 0);
}

/// Of a free run's tokens each, the very first too, is once the one that ends the request.
inline void expect_a_stop_token_is_the_last_one(const CaseEngine& make, const ModelWeights& model) {
  const Request request{.prompt = {1, 2, 3}, .max_new_tokens = 10};
  const auto tokens = [](Engine& engine, const Request& asked) {
    return engine.generate({&asked, 1}, nullptr).value().requests[0].tokens;
  };
  const auto weights = std::make_shared<ModelWeights>(model);
  const std::vector<int32_t> free_run = tokens(*make(weights), request);
  ASSERT_EQ(free_run.size(), 10U);
  Request stopping = request;
  stopping.ignore_eos = false;
  for (const size_t stop : {0, 4, 9}) {
    const auto stopped = std::make_shared<ModelWeights>(model);
    stopped->config.eos_token_id = free_run[stop];
    const auto first = std::find(free_run.begin(), free_run.end(), free_run[stop]);
    const auto engine = make(stopped);
    EXPECT_EQ(tokens(*engine, stopping), std::vector<int32_t>(free_run.begin(), first + 1));
    EXPECT_EQ(tokens(*engine, request), free_run);
  }
}

/// One token is asked for: nothing is decoded, and the next request is as ever.
inline void expect_a_single_token_needs_no_decode_step(Engine& engine) {
  const Request one{.prompt = {1, 2, 3}, .max_new_tokens = 1};
  const Request more{.prompt = {1, 2, 3}, .max_new_tokens = 6};
  const auto first = engine.generate({&one, 1}, nullptr);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->decode_steps, 0);
  const auto longer = engine.generate({&more, 1}, nullptr);
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->requests[0].tokens.front(), first->requests[0].tokens.front());
}

}  // namespace triptych
