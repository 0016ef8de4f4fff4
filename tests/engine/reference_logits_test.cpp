// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The real model against transformers in float32 on the dequantized weights, made by
// tests/reference/make_logits_golden.py: prefill and 64 decode steps of 10 prompts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "engine/weights.h"
#include "tests/support/model_path.h"

namespace triptych {
namespace {

// Largest |logit - reference| allowed. Logits of this model reach about 30. Exact 4-bit blocks
// leave two sources of error: f32 sums in another order, and keys and values rounded to f16
// (relative 2^-11 each), which dominates and grows through 30 layers. Weights rounded to f16 add as
// much again for every matrix.
constexpr double kExactWeightsTolerance = 0.05;
constexpr double kF16WeightsTolerance = 0.1;

const nlohmann::json& golden() {
  static const nlohmann::json json = [] {
    std::ifstream file(std::string(TRIPTYCH_SOURCE_DIR) + "/tests/golden/logits/smollm2.json");
    return nlohmann::json::parse(file);
  }();
  return json;
}

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

struct Stack {
  const char* runtime;
  WeightScheme weights;
  double tolerance;
};

std::string stack_name(const testing::TestParamInfo<Stack>& info) {
  std::string name =
      std::string(info.param.runtime) + "_" + std::string(weight_scheme_name(info.param.weights));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class ReferenceLogits : public testing::TestWithParam<Stack> {
 protected:
  void SetUp() override {
    TRIPTYCH_SKIP_WITHOUT_MODEL();
    checkpoint_ = open_checkpoint({.path = model_path()}).value();
    EngineOptions options;
    options.features = RuntimeFeatures::parse(GetParam().runtime, DeviceKind::kCpu).value();
    options.max_sequence = 128;
    engine_ = make_engine(load_weights(checkpoint_, GetParam().weights).value(), options).value();
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::unique_ptr<Engine> engine_;
};

// Teacher-forced on the reference's tokens: the prompt at once, then one token a decode step.
TEST_P(ReferenceLogits, PrefillAndDecodeStepsMatch) {
  const auto sampled = golden().at("sampled_ids").get<std::vector<size_t>>();
  double worst = 0;
  int steps = 0;
  int disagreeing = 0;
  for (const nlohmann::json& reference : golden().at("cases")) {
    auto tokens = reference.at("prompt_ids").get<std::vector<int32_t>>();
    const auto prompt = static_cast<int64_t>(tokens.size());
    for (const nlohmann::json& step : reference.at("steps")) tokens.push_back(step.at("token"));
    tokens.pop_back();  // the last token's own logits are not in the reference
    const Status status =
        engine_->score(tokens, prompt, [&](int64_t position, std::span<const float> logits) {
          if (position < prompt - 1) return;
          const nlohmann::json& step = reference.at("steps").at(position - prompt + 1);
          for (size_t i = 0; i < sampled.size(); ++i) {
            const double expected = step.at("logits").at(i);
            worst = std::max(worst, std::abs(static_cast<double>(logits[sampled[i]]) - expected));
          }
          worst =
              std::max(worst, std::abs(log_sum_exp(logits) - step.at("logsumexp").get<double>()));
          const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
          // The two candidates may each move by the tolerance before the order is an error.
          if (best != step.at("token").get<int64_t>()) {
            ++disagreeing;
            EXPECT_LT(step.at("margin").get<double>(), 2 * GetParam().tolerance)
                << reference.at("text") << " position " << position;
          }
          ++steps;
        });
    ASSERT_TRUE(status) << status.error().to_string();
  }
  EXPECT_EQ(steps, 650);
  EXPECT_LT(worst, GetParam().tolerance);
  RecordProperty("max_logit_error", std::to_string(worst));
  std::printf("max error %.5f over %d steps, %d near ties decided differently\n", worst, steps,
              disagreeing);
}

INSTANTIATE_TEST_SUITE_P(
    Stacks, ReferenceLogits,
    testing::Values(Stack{"eager", WeightScheme::kW4A16G32, kExactWeightsTolerance},
                    Stack{"fast", WeightScheme::kW4A16G32, kExactWeightsTolerance},
                    Stack{"fast", WeightScheme::kF32, kExactWeightsTolerance},
                    Stack{"fast", WeightScheme::kF16, kF16WeightsTolerance}),
    stack_name);

// Greedy generation, every token of it, where the reference is not at a near tie: from there on the
// texts may differ for a good reason.
TEST(ReferenceGeneration, GreedyTokensAreTheReferences) {
  TRIPTYCH_SKIP_WITHOUT_MODEL();
  const auto checkpoint = open_checkpoint({.path = model_path()}).value();
  EngineOptions options;
  options.features = RuntimeFeatures::fast(DeviceKind::kCpu);
  options.max_sequence = 128;
  const auto engine =
      make_engine(load_weights(checkpoint, WeightScheme::kW4A16G32).value(), options).value();
  int compared = 0;
  int ties = 0;
  for (const nlohmann::json& reference : golden().at("cases")) {
    const auto prompt = reference.at("prompt_ids").get<std::vector<int32_t>>();
    EXPECT_EQ(checkpoint->tokenizer()->encode(reference.at("text").get<std::string>()), prompt);
    const nlohmann::json& steps = reference.at("steps");
    const Request request{prompt, static_cast<int64_t>(steps.size()), true};
    const GenerateResult result = engine->generate({&request, 1}, nullptr).value();
    for (size_t i = 0; i < steps.size(); ++i) {
      const int32_t token = result.requests[0].tokens[i];
      ++compared;
      if (token == steps[i].at("token").get<int32_t>()) continue;
      ++ties;
      EXPECT_LT(steps[i].at("margin").get<double>(), 2 * kExactWeightsTolerance)
          << reference.at("text") << " step " << i << ": " << token;
      break;
    }
  }
  std::printf("%d tokens compared, %d sequences left at a near tie\n", compared, ties);
  EXPECT_GT(compared, 500);
}

}  // namespace
}  // namespace triptych
