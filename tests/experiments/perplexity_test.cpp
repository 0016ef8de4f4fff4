// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/perplexity.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/experiments/fake_engine.h"

namespace triptych {
namespace {

using test::FakeEngine;

// After position i the fake's logits are 1 at token i % 8 and 0 at the seven others.
const double kRight = 7 / std::exp(1.0) + 1;  // 1 / p of the token that it prefers
const double kWrong = 7 + std::exp(1.0);      // 1 / p of any other

TEST(Perplexity, IsTheInverseOfAnEvenProbability) {
  FakeEngine engine({}, {});
  const std::vector<int32_t> wrong = {7, 7, 7, 7, 7};
  const auto result = measure_perplexity(engine, wrong, {.window = 5});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->tokens, 5);
  EXPECT_EQ(result->predicted, 4);
  EXPECT_NEAR(result->value(), kWrong, 1e-9);
  const std::vector<int32_t> right = {7, 0, 1, 2};
  EXPECT_NEAR(measure_perplexity(engine, right, {.window = 5})->value(), kRight, 1e-9);
}

TEST(Perplexity, WindowsStartAnew) {
  FakeEngine engine({}, {});
  const std::vector<int32_t> tokens = {7, 0, 1, 7, 0, 1, 7};
  const auto result = measure_perplexity(engine, tokens, {.window = 3});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->predicted, 4);  // the last token is alone
  EXPECT_EQ(result->window_nll.size(), 2u);
  EXPECT_NEAR(result->value(), kRight, 1e-9);
}

TEST(Perplexity, APrefixPredictsTheFirstTokenOfEachWindow) {
  FakeEngine engine({}, {});
  const std::vector<int32_t> tokens = {0, 1, 0, 1, 0};
  const std::array<int32_t, 1> bos = {5};
  const auto result = measure_perplexity(engine, tokens, {.window = 2, .prefix = bos});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->predicted, 5);
  EXPECT_NEAR(result->value(), kRight, 1e-9);
  const std::array<int32_t, 2> two = {5, 0};  // only the text is predicted
  const std::vector<int32_t> after = {1, 2};
  const auto longer = measure_perplexity(engine, after, {.window = 2, .prefix = two});
  EXPECT_EQ(longer->predicted, 2);
  EXPECT_NEAR(longer->value(), kRight, 1e-9);
}

TEST(Perplexity, RefusesWhatHasNothingToPredict) {
  FakeEngine engine({}, {});
  const std::vector<int32_t> one = {1};
  EXPECT_EQ(measure_perplexity(engine, one, {}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(measure_perplexity(engine, {}, {}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(measure_perplexity(engine, one, {.window = 1}).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace triptych
