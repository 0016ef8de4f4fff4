// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/command_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/units.h"
#include "engine/step_cost.h"
#include "tests/support/fake_command.h"
#include "tests/support/record_sink.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

using test::fake_command;
using ::testing::HasSubstr;

std::unique_ptr<Engine> start(const CommandEngineOptions& options) {
  auto engine = make_command_engine(options);
  EXPECT_TRUE(engine.has_value()) << (engine ? "" : engine.error().to_string());
  return engine ? std::move(*engine) : nullptr;
}

std::vector<Request> three_requests() {
  return {{.prompt = {1, 2}, .max_new_tokens = 4},
          {.prompt = {10}, .max_new_tokens = 2},
          {.prompt = {500, 11}, .max_new_tokens = 3}};
}

TEST(CommandEngine, TokensAndTimesOfAPass) {
  const auto engine = start(fake_command());
  ASSERT_TRUE(engine);
  for (int pass = 0; pass < 2; ++pass) {  // one process serves all passes
    const int64_t before = now_ns();
    const auto result = engine->generate(three_requests(), nullptr);
    ASSERT_TRUE(result) << result.error().to_string();
    EXPECT_GE(result->start_ns, before);
    EXPECT_LE(result->end_ns, now_ns());
    EXPECT_EQ(result->requests[0].tokens, (std::vector<int32_t>{3, 4, 5, 6}));
    EXPECT_EQ(result->requests[1].tokens, (std::vector<int32_t>{10, 11}));
    EXPECT_EQ(result->requests[2].tokens, (std::vector<int32_t>{511, 0, 1}));
    // Two clients: the third request was submitted when the second had ended.
    EXPECT_EQ(result->requests[1].submit_ns, result->start_ns);
    EXPECT_GE(result->requests[2].submit_ns, result->requests[1].token_ns.back());
    EXPECT_LE(result->requests[2].submit_ns, result->requests[0].token_ns.back());
    for (const RequestResult& answer : result->requests) {
      EXPECT_LE(answer.submit_ns, answer.admit_ns);
      EXPECT_LE(answer.admit_ns, answer.token_ns.front());
      EXPECT_TRUE(std::is_sorted(answer.token_ns.begin(), answer.token_ns.end()));
    }
    EXPECT_EQ(result->prefill_steps, 2);
  }
  EXPECT_EQ(engine->memory().weight_bytes, 1000);
  EXPECT_EQ(engine->memory().peak_bytes(), 3000);
  EXPECT_EQ(engine->kernel_choice(1), "fake 1 on cpu: linear=none; none 0");
}

TEST(CommandEngine, MemoryIsWhatWasTold) {
  const auto peak = [](const char* behave) {
    const auto engine = start(fake_command(behave));
    TRIPTYCH_CHECK(engine != nullptr, "it starts");
    EXPECT_TRUE(engine->generate(three_requests(), nullptr));
    return engine->memory().peak_bytes();
  };
  EXPECT_EQ(peak("tells_no_memory"), 0);
  EXPECT_EQ(peak("tells_no_peak"), 0) << "weights are not all that it holds";
  EXPECT_EQ(peak("maps_weights"), 300);
}

TEST(CommandEngine, AChunkIsDeliveredAtOnce) {
  const auto engine = start(fake_command("ok", {{"tokens", 3}}));
  ASSERT_TRUE(engine);
  const auto result = engine->generate(three_requests(), nullptr);
  ASSERT_TRUE(result) << result.error().to_string();
  const RequestResult& first = result->requests[0];
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{3, 4, 5, 6}));
  EXPECT_EQ(first.token_ns[0], first.token_ns[2]);
  EXPECT_LT(first.token_ns[2], first.token_ns[3]);
}

TEST(CommandEngine, CostIsThatOfTheShapes) {
  const CommandEngineOptions options = fake_command();
  const auto engine = start(options);
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->decode_step_cost(2, 32).bytes(),
            step_cost(*options.shapes, options.engine, 2, 32).bytes());
}

TEST(CommandEngine, ScoresWhereItCan) {
  const auto engine = start(fake_command("ok", {{"can", {"score"}}}));
  ASSERT_TRUE(engine);
  ASSERT_TRUE(engine->can_score());
  std::vector<int64_t> best;
  const Status scored = engine->score(
      std::vector<int32_t>{5, 9, 511}, 2, [&](int64_t position, std::span<const float> logits) {
        EXPECT_EQ(position, static_cast<int64_t>(best.size()));
        best.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
      });
  ASSERT_TRUE(scored) << scored.error().to_string();
  EXPECT_EQ(best, (std::vector<int64_t>{6, 10, 0}));
}

TEST(CommandEngine, SamplingIsRefusedBeforeAnythingStarts) {
  CommandEngineOptions options = fake_command();
  options.engine.sampling.temperature = 0.8F;
  options.command.argv = {"/nonexistent/engine"};
  const auto engine = make_command_engine(options);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(engine.error().message, HasSubstr("greedy only"));
}

TEST(CommandEngine, WhatItCannotDoIsRefused) {
  const auto engine = start(fake_command());
  ASSERT_TRUE(engine);
  EXPECT_FALSE(engine->can_score());
  EXPECT_FALSE(engine->can_trace());
  const auto ignore = [](int64_t, std::span<const float>) {};
  EXPECT_EQ(engine->score(std::vector<int32_t>{1}, 1, ignore).error().code,
            ErrorCode::kUnsupported);
  std::vector<Request> late = three_requests();
  late[0].arrival_ns = 5;
  EXPECT_EQ(engine->generate(late, nullptr).error().code, ErrorCode::kUnsupported);
  RecordSink sink;
  EXPECT_EQ(engine->generate(three_requests(), &sink).error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(engine->writes_traces());
  EXPECT_EQ(engine->generate_to_file(three_requests(), {}).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(engine->generate(three_requests(), nullptr));  // none of them ended it
}

TEST(CommandEngine, WritesATraceWhereItCan) {
  const auto engine = start(fake_command("ok", {{"can", {"trace"}}}));
  ASSERT_TRUE(engine);
  EXPECT_TRUE(engine->writes_traces());
  EXPECT_FALSE(engine->can_trace()) << "it tells no sink";
  const TempDir folder;
  const TraceFile file{.path = folder / "trace.json", .steps = 3};
  const auto result = engine->generate_to_file(three_requests(), file);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->requests[0].tokens.size(), 4U);
  EXPECT_TRUE(std::filesystem::exists(file.path));
  EXPECT_EQ(engine->memory().peak_bytes(), 0) << "a traced pass says nothing of its memory";
  ASSERT_TRUE(engine->generate(three_requests(), nullptr));
  EXPECT_EQ(engine->memory().peak_bytes(), 3000);
}

TEST(CommandEngine, APassWithoutATraceDoesNotEndIt) {
  for (const auto& [fault, reason] :
       {std::pair("error", "no profiler in this build"),
        std::pair("untold", "neither \"trace\" nor \"trace_error\"")}) {
    const auto engine = start(fake_command("ok", {{"can", {"trace"}}, {"trace", fault}}));
    ASSERT_TRUE(engine);
    const auto result = engine->generate_to_file(three_requests(), {.path = "/none", .steps = 3});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(result.error().message, HasSubstr(reason));
    EXPECT_TRUE(engine->generate(three_requests(), nullptr));
  }
}

TEST(CommandEngine, ARequestBeyondItsLimitsIsNotSent) {
  const auto engine = start(fake_command());
  ASSERT_TRUE(engine);
  const std::vector<Request> long_one = {{.prompt = {1}, .max_new_tokens = 64}};
  EXPECT_EQ(engine->generate(long_one, nullptr).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(engine->generate(three_requests(), nullptr));
}

struct Wrong {
  const char* behave;
  ErrorCode code;
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const Wrong& wrong) { return out << wrong.behave; }

class WrongAtOpen : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongAtOpen, IsAnErrorThatSaysSo) {
  const auto engine = make_command_engine(fake_command(GetParam().behave));
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, GetParam().code);
  EXPECT_EQ(engine.error().where, "fake");
  EXPECT_THAT(engine.error().message, HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    Fake, WrongAtOpen,
    ::testing::Values(
        Wrong{"exit_at_open", ErrorCode::kIo,
              "it ended before \"ready\"; it ended with exit code 3; its standard error: cannot "
              "find a module | ModuleNotFoundError: no module"},
        Wrong{"no_memory", ErrorCode::kOutOfMemory, "needs 2 GiB of 1 GiB"},
        Wrong{"no_such_option", ErrorCode::kUnsupported, "no mode fast"},
        Wrong{"new_protocol", ErrorCode::kUnsupported, "protocol 2, expected 1"},
        Wrong{"other_device", ErrorCode::kCorrupt, "runs on Imaginary 9, asked for cpu"},
        Wrong{"other_vocab", ErrorCode::kCorrupt, "vocabulary has 7 tokens, the model's 512"}));

class WrongInPass : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongInPass, IsAnErrorThatSaysSoAndStays) {
  const auto engine = start(fake_command(GetParam().behave));
  ASSERT_TRUE(engine);
  const auto result = engine->generate(three_requests(), nullptr);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, GetParam().code);
  EXPECT_THAT(result.error().message, HasSubstr(GetParam().message));
  const auto again = engine->generate(three_requests(), nullptr);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, result.error().message);
}
INSTANTIATE_TEST_SUITE_P(
    Fake, WrongInPass,
    ::testing::Values(
        Wrong{"segfault", ErrorCode::kIo,
              "(0 of 3 requests done, 2 tokens); it ended with signal 11 (Segmentation fault); its "
              "standard error: about to die"},
        Wrong{"dies_before_worker", ErrorCode::kIo,
              "it ended before \"end\" of a pass (0 of 3 requests done, 2 tokens); it ended with "
              "exit code 7"},
        Wrong{"not_json", ErrorCode::kCorrupt, "\"Loading weights: 42%?[0m\""},
        Wrong{"half_line", ErrorCode::kCorrupt, "\"{\"type\": \"tok\""},
        Wrong{"endless_line", ErrorCode::kCorrupt, "a line of more than 33554432 bytes"},
        Wrong{"early_end", ErrorCode::kCorrupt, "request 0 ends with 1 of 4 tokens"},
        Wrong{"other_id", ErrorCode::kCorrupt, "there is no request 77, expected 0 to 2"},
        Wrong{"other_index", ErrorCode::kCorrupt, "request 0: token number 2, expected 1"},
        Wrong{"other_token", ErrorCode::kCorrupt,
              "request 0: token 512 is outside of the vocabulary of 512"},
        Wrong{"no_token", ErrorCode::kCorrupt, "an entry of \"of\" is [0,1]"},
        Wrong{"too_many", ErrorCode::kCorrupt, "a token of request 0, which has ended"},
        Wrong{"future", ErrorCode::kCorrupt, "after the record was read"},
        Wrong{"backwards", ErrorCode::kCorrupt, "times run backwards"},
        Wrong{"before_start", ErrorCode::kCorrupt, "line 2 of its output: the pass starts"},
        Wrong{"other_pass", ErrorCode::kCorrupt, "pass is 2, expected 1"},
        Wrong{"crowd", ErrorCode::kCorrupt, "request 2 begins while 2 others run"},
        Wrong{"no_end", ErrorCode::kIo,
              "it ended before \"end\" of a pass (3 of 3 requests done"}));

TEST(CommandEngine, WhatComesAfterTheEndSpoilsTheNextPass) {
  const auto engine = start(fake_command("after_end"));
  ASSERT_TRUE(engine);
  EXPECT_TRUE(engine->generate(three_requests(), nullptr));
  const auto result = engine->generate(three_requests(), nullptr);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("a record \"tokens\", expected \"start\""));
}

TEST(CommandEngine, BadLogitsAreAnError) {
  const auto ignore = [](int64_t, std::span<const float>) {};
  for (const auto& [behave, message] :
       {std::pair("nan", "logit 2 of position 0 is not a number"),
        std::pair("short_logits", "2044 bytes of logits, expected 4 for each of 512 tokens")}) {
    const auto engine = start(fake_command(behave, {{"can", {"score"}}}));
    ASSERT_TRUE(engine);
    const Status scored = engine->score(std::vector<int32_t>{1, 2}, 1, ignore);
    ASSERT_FALSE(scored);
    EXPECT_THAT(scored.error().message, HasSubstr(message));
  }
}

TEST(CommandEngine, SilenceEndsWithTheTimeThatWasWaited) {
  CommandEngineOptions options = fake_command("silence");
  options.timeouts.record_ns = 300'000'000;
  const auto engine = start(options);
  ASSERT_TRUE(engine);
  const auto result = engine->generate(three_requests(), nullptr);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("no answer in time, waiting 300 ms for \"end\""));

  options = fake_command("never_ready");
  options.timeouts.start_ns = 300'000'000;
  const auto never = make_command_engine(options);
  ASSERT_FALSE(never);
  EXPECT_THAT(never.error().message, HasSubstr("waiting 300 ms for \"ready\""));
}

TEST(CommandEngine, APassHasATimeOfItsOwn) {
  CommandEngineOptions options = fake_command("ok", {{"step_ms", 200}});
  options.timeouts.pass_ns = 300'000'000;
  const auto engine = start(options);
  ASSERT_TRUE(engine);
  const auto result = engine->generate(three_requests(), nullptr);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("no answer in time"));
}

TEST(CommandEngine, AnInterruptEndsTheWait) {
  std::atomic<bool> interrupted = false;
  CommandEngineOptions options = fake_command("silence");
  options.interrupted = &interrupted;
  const auto engine = start(options);
  ASSERT_TRUE(engine);
  std::jthread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    interrupted = true;
  });
  const auto result = engine->generate(three_requests(), nullptr);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("interrupted"));
}

TEST(CommandEngine, AMissingProgramIsNamed) {
  CommandEngineOptions options = fake_command();
  options.command.argv = {"no-such-program-anywhere"};
  const auto engine = make_command_engine(options);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(engine.error().where, "no-such-program-anywhere");
}

}  // namespace
}  // namespace triptych
