// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Perplexity of each stack on a public-domain text against transformers in float32, made by
// tests/reference/make_perplexity_golden.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "engine/checkpoint.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "experiments/perplexity.h"
#include "tests/support/golden.h"
#include "tests/support/model_path.h"

namespace triptych {
namespace {

// Largest |mean negative log-likelihood - reference|, in nats a token; the relative error of the
// perplexity is the same number. The logits of a stack are off by at most 0.05 (weights as they
// are stored) or 0.1 (weights rounded to f16; see reference_logits_test.cpp), without a bias, so
// that the mean over 4,000 tokens is off by far less: 0.1 / sqrt(4000) = 1.6e-3 if every error were
// at its bound and independent of the others; a third of it, because few come near the bound.
constexpr double kTolerance = 5e-4;
// A window of 512 tokens averages an eighth as many: sqrt(8) times as much.
constexpr double kWindowTolerance = 1.5e-3;
// Read one by one, so that the kernels of decode steps are scored, too. The others are prefill.
constexpr int64_t kDecodeTokens = 4;

struct Stack {
  const char* name;
  const char* runtime;
  WeightScheme weights;
};

class ReferencePerplexity : public testing::TestWithParam<Stack> {};

TEST_P(ReferencePerplexity, IsWithinTolerance) {
  TRIPTYCH_SKIP_WITHOUT_MODEL();
  std::ifstream file(golden_dir() / "perplexity" / "smollm2_coriolanus.json");
  const auto golden = nlohmann::json::parse(file);
  const auto text = MappedFile::open(std::filesystem::path(TRIPTYCH_SOURCE_DIR) / "tests" / "data" /
                                     golden.at("text").get<std::string>());
  ASSERT_TRUE(text.has_value()) << text.error().to_string();
  const auto checkpoint = open_checkpoint({.path = model_path()}).value();
  const std::vector<int32_t> tokens = checkpoint->tokenizer()->encode(text->text());
  ASSERT_EQ(std::ssize(tokens), golden.at("tokens").get<int64_t>());

  const auto window = golden.at("window").get<int64_t>();
  EngineOptions options;
  options.features = RuntimeFeatures::parse(GetParam().runtime, DeviceKind::kCpu).value();
  options.max_sequence = window;
  const auto engine =
      make_engine(load_weights(checkpoint, GetParam().weights).value(), options).value();
  const auto measured =
      measure_perplexity(*engine, tokens, {.window = window, .decode_tokens = kDecodeTokens});
  ASSERT_TRUE(measured.has_value()) << measured.error().to_string();
  ASSERT_EQ(measured->predicted, golden.at("predicted").get<int64_t>());
  ASSERT_GE(measured->predicted, 4000);

  const auto windows = golden.at("window_nll").get<std::vector<double>>();
  ASSERT_EQ(measured->window_nll.size(), windows.size());
  double worst = 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    const auto count = static_cast<double>(
        std::min(window, std::ssize(tokens) - static_cast<int64_t>(i) * window) - 1);
    worst = std::max(worst, std::abs(measured->window_nll[i] - windows[i]) / count);
  }
  const double expected = golden.at("perplexity").get<double>();
  const double error = std::log(measured->value() / expected);
  std::printf("%s: perplexity %.5f, reference %.5f, error %.2e nats a token, worst window %.2e\n",
              GetParam().name, measured->value(), expected, error, worst);
  EXPECT_LT(std::abs(error), kTolerance);
  EXPECT_LT(worst, kWindowTolerance);
}

INSTANTIATE_TEST_SUITE_P(Stacks, ReferencePerplexity,
                         testing::Values(Stack{"baseline_f16", "eager", WeightScheme::kF16},
                                         Stack{"intermediate_f16", "fast", WeightScheme::kF16},
                                         Stack{"corner_w4a16_g32", "eager",
                                               WeightScheme::kW4A16G32},
                                         Stack{"full_w4a16_g32", "fast", WeightScheme::kW4A16G32}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace triptych
