// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/agreement.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/experiments/fake_engine.h"

namespace triptych {
namespace {

using test::FakeBehaviour;
using test::FakeEngine;

std::vector<Request> requests(size_t count, int64_t outputs) {
  return std::vector<Request>(count, Request{{1, 2}, outputs, true});
}

TEST(Agreement, BaselineAgreesWithItself) {
  FakeEngine baseline({}, {});
  Engine* engines[] = {&baseline};
  const auto results = measure_agreement(engines, requests(2, 8));
  ASSERT_EQ(results.size(), 1U);
  ASSERT_TRUE(results[0].agreement) << results[0].error;
  EXPECT_EQ(results[0].agreement->token_agreement, 1.0);
  EXPECT_EQ(results[0].agreement->max_logit_error, 0.0);
}

TEST(Agreement, CountsPositionsWhoseArgmaxMoved) {
  FakeEngine baseline({}, {});
  // Token 0 gets 2 where the best has 1: the argmax moves at the 7 of 8 positions where it is not
  // 0.
  FakeEngine other({.logit_shift = 2.0F}, {});
  Engine* engines[] = {&baseline, &other};
  const auto results = measure_agreement(engines, requests(1, 8));
  ASSERT_TRUE(results[1].agreement) << results[1].error;
  EXPECT_DOUBLE_EQ(results[1].agreement->token_agreement, 1.0 / 8);
  EXPECT_DOUBLE_EQ(results[1].agreement->max_logit_error.value(), 2.0);
}

TEST(Agreement, PerplexityIsThatOfTheWholeSequence) {
  FakeEngine baseline({}, {});
  Engine* engines[] = {&baseline};
  // Prompt 1 2 and output 0 1: after position i the fake's logits are 1 at token i and 0 elsewhere,
  // so token 2 after position 0, 0 after 1 and 1 after 2 all have the probability 1 / (7 + e).
  const auto results = measure_agreement(engines, requests(1, 2));
  ASSERT_TRUE(results[0].agreement);
  EXPECT_NEAR(results[0].agreement->perplexity.value(), 7 + std::exp(1.0), 1e-9);
}

TEST(Agreement, LongPromptsAreScoredAlone) {
  const auto perplexity = [](const std::vector<Request>& asked) {
    FakeEngine baseline({}, {});
    Engine* engines[] = {&baseline};
    return measure_agreement(engines, asked)[0].agreement->perplexity.value();
  };
  const Request longest{std::vector<int32_t>(1024, 7), 2, true};
  const Request half{std::vector<int32_t>(512, 1), 2, true};
  const Request brief{{2, 0}, 2, true};
  EXPECT_EQ(perplexity({longest, brief}), perplexity({longest}));
  EXPECT_EQ(perplexity({brief, longest}), perplexity({brief}));
  EXPECT_EQ(perplexity({half, half, brief}), perplexity({half, half}));
  EXPECT_NE(perplexity({brief, half}), perplexity({brief}));
}

TEST(Agreement, FailedBaselineLeavesNobodyToCompareWith) {
  FakeBehaviour broken;
  broken.before_generate = [](bool) { return Status(fail(ErrorCode::kIo, "no luck")); };
  FakeEngine baseline(broken, {});
  FakeEngine other({}, {});
  Engine* engines[] = {&baseline, &other};
  for (const AgreementResult& result : measure_agreement(engines, requests(1, 2))) {
    EXPECT_FALSE(result.agreement);
    EXPECT_EQ(result.error, "baseline: no luck");
  }
}

TEST(Agreement, OnlyTheEngineThatLostTheDeviceSaysSo) {
  FakeBehaviour losing;
  losing.before_generate = [](bool) { return Status(fail(ErrorCode::kDeviceLost, "gone")); };
  FakeEngine baseline(losing, {});
  FakeEngine other({}, {});
  Engine* engines[] = {&baseline, &other};
  const auto results = measure_agreement(engines, requests(1, 2));
  EXPECT_TRUE(results[0].device_lost);
  EXPECT_FALSE(results[1].device_lost);
}

/// An engine without logits that says something else from one token on.
class SilentEngine final : public Engine {
 public:
  explicit SilentEngine(size_t first_other) : first_other_(first_other) {}
  Result<GenerateResult> generate(std::span<const Request> asked, ActivitySink* sink) override {
    TRIPTYCH_TRY(GenerateResult result, inner_.generate(asked, sink));
    for (RequestResult& answer : result.requests) {
      for (size_t i = first_other_; i < answer.tokens.size(); ++i) answer.tokens[i] = 7;
    }
    return result;
  }
  Status score(std::span<const int32_t>, int64_t, const LogitsVisitor&) override {
    ADD_FAILURE() << "it was asked for what it said that it cannot do";
    return fail(ErrorCode::kUnsupported, "no logits");
  }
  bool can_score() const override { return false; }
  EngineMemory memory() const override { return inner_.memory(); }
  KernelCost decode_step_cost(int64_t batch, int64_t context) const override {
    return inner_.decode_step_cost(batch, context);
  }
  std::string kernel_choice(int64_t batch) const override { return inner_.kernel_choice(batch); }
  const EngineOptions& options() const override { return inner_.options(); }

 private:
  size_t first_other_;
  FakeEngine inner_{{}, {}};
};

TEST(Agreement, WithoutLogitsItsOwnTokensAreCompared) {
  FakeEngine baseline({}, {});
  SilentEngine other(6);
  Engine* engines[] = {&baseline, &other};
  const auto results = measure_agreement(engines, requests(2, 8));
  ASSERT_TRUE(results[1].agreement) << results[1].error;
  EXPECT_DOUBLE_EQ(results[1].agreement->token_agreement, 6.0 / 8);
  EXPECT_EQ(results[1].agreement->max_logit_error, std::nullopt);
  EXPECT_EQ(results[1].agreement->perplexity, std::nullopt);
}

TEST(Agreement, TheTokensOfABaselineWithoutLogitsTakeTheirPlace) {
  SilentEngine baseline(100);
  FakeEngine other({}, {});
  Engine* engines[] = {&baseline, &other};
  // The baseline says 0 1 2 0 ...; the other's logits prefer the position's number, which is that
  // token at positions 1 to 3 (prompt 1 2), where 0, 1 and 2 come: none of them agrees.
  const auto results = measure_agreement(engines, requests(1, 3));
  ASSERT_TRUE(results[0].agreement) << results[0].error;
  EXPECT_EQ(results[0].agreement->token_agreement, 1.0);
  ASSERT_TRUE(results[1].agreement) << results[1].error;
  EXPECT_EQ(results[1].agreement->token_agreement, 0.0);
  EXPECT_EQ(results[1].agreement->max_logit_error, std::nullopt);
  EXPECT_TRUE(results[1].agreement->perplexity.has_value());
}

/// Remembers how much it was asked to do.
class CountingEngine final : public Engine {
 public:
  Result<GenerateResult> generate(std::span<const Request> asked, ActivitySink* sink) override {
    num_requests = asked.size();
    return inner_.generate(asked, sink);
  }
  Status score(std::span<const int32_t> tokens, int64_t prefill_tokens,
               const LogitsVisitor& visit) override {
    num_scored += static_cast<int64_t>(tokens.size());
    return inner_.score(tokens, prefill_tokens, visit);
  }
  EngineMemory memory() const override { return inner_.memory(); }
  KernelCost decode_step_cost(int64_t batch, int64_t context) const override {
    return inner_.decode_step_cost(batch, context);
  }
  std::string kernel_choice(int64_t batch) const override { return inner_.kernel_choice(batch); }
  const EngineOptions& options() const override { return inner_.options(); }

  size_t num_requests = 0;
  int64_t num_scored = 0;

 private:
  FakeEngine inner_{{}, {}};
};

TEST(Agreement, WorkIsBounded) {
  CountingEngine engine;
  Engine* engines[] = {&engine};
  ASSERT_TRUE(measure_agreement(engines, requests(100, 5000))[0].agreement);
  EXPECT_EQ(engine.num_requests, 4U);
  EXPECT_EQ(engine.num_scored, 4 * (2 + 64 - 1));
}

}  // namespace
}  // namespace triptych
