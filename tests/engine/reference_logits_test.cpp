// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The real model against transformers in float32 on the dequantized weights, made by
// tests/reference/make_logits_golden.py: prefill and 64 decode steps of 10 prompts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/checkpoint.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "engine/weights.h"
#include "tests/support/model_path.h"
#include "tests/support/smollm_cases.h"

namespace triptych {
namespace {

// Largest |logit - reference| allowed. Logits of this model reach about 30. Exact 4-bit blocks
// leave two sources of error: f32 sums in another order, and keys and values rounded to f16
// (relative 2^-11 each), which dominates and grows through 30 layers. Weights rounded to f16 add as
// much again for every matrix.
constexpr double kExactWeightsTolerance = 0.05;
constexpr double kF16WeightsTolerance = 0.1;

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
    const auto checkpoint = open_checkpoint({.path = model_path()}).value();
    EngineOptions options;
    options.features = RuntimeFeatures::parse(GetParam().runtime, DeviceKind::kCpu).value();
    options.max_sequence = 128;
    engine_ = make_engine(load_weights(checkpoint, GetParam().weights).value(), options).value();
  }

  std::unique_ptr<Engine> engine_;
};

TEST_P(ReferenceLogits, PrefillAndDecodeStepsMatch) {
  const ReferenceError error = smollm_error(*engine_, GetParam().tolerance);
  EXPECT_EQ(error.steps, 650);
  EXPECT_LT(error.worst, GetParam().tolerance);
  RecordProperty("max_logit_error", std::to_string(error.worst));
  std::printf("max error %.5f over %d steps, %d near ties decided differently\n", error.worst,
              error.steps, error.disagreeing);
}

INSTANTIATE_TEST_SUITE_P(
    Stacks, ReferenceLogits,
    testing::Values(Stack{"eager", WeightScheme::kW4A16G32, kExactWeightsTolerance},
                    Stack{"fast", WeightScheme::kW4A16G32, kExactWeightsTolerance},
                    Stack{"fast", WeightScheme::kF32, kExactWeightsTolerance},
                    Stack{"fast", WeightScheme::kF16, kF16WeightsTolerance}),
    stack_name);

TEST(ReferenceGeneration, GreedyTokensAreTheReferences) {
  TRIPTYCH_SKIP_WITHOUT_MODEL();
  const auto checkpoint = open_checkpoint({.path = model_path()}).value();
  for (const nlohmann::json& reference : smollm_golden().at("cases")) {
    EXPECT_EQ(checkpoint->tokenizer()->encode(reference.at("text").get<std::string>()),
              reference.at("prompt_ids").get<std::vector<int32_t>>());
  }
  EngineOptions options;
  options.features = RuntimeFeatures::fast(DeviceKind::kCpu);
  options.max_sequence = 128;
  const auto engine =
      make_engine(load_weights(checkpoint, WeightScheme::kW4A16G32).value(), options).value();
  const GreedyMatch match = smollm_greedy(*engine, kExactWeightsTolerance);
  std::printf("%d tokens compared, %d sequences left at a near tie\n", match.compared, match.ties);
  EXPECT_GT(match.compared, 500);
}

}  // namespace
}  // namespace triptych
