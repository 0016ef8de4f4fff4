// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Small random models of every family against transformers in float32, made by
// tests/reference/families.py: every position of a prefill and of 16 decode steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/hf_config.h"
#include "engine/synthetic.h"
#include "engine/weights.h"
#include "tests/support/golden.h"

namespace triptych {
namespace {

// Largest |logit - reference| allowed; logits reach about 4. The weights are the same numbers, so
// what differs is keys and values rounded to f16 (relative 2^-11 each) in at most 3 layers, and f32
// sums in another order. Each rounding moves the residual stream by about 2^-12 of an attention
// output of order one, a few of them add up. Measured: below 2e-3.
constexpr double kTolerance = 3e-3;

Json read_cases() {
  std::ifstream file(golden_dir() / "families" / "cases.json");
  return Json::parse(file).at("cases");
}
const Json& cases() {
  static const Json json = read_cases();
  return json;
}

std::vector<float> read_logits(const std::string& name) {
  std::ifstream file(golden_dir() / "families" / (name + ".f32"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> logits(bytes.size() / sizeof(float));
  std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
  return logits;
}

ModelConfig config_of(const Json& golden) {
  return parse_hf_config(golden.at("config").dump(), golden.at("name"), "cases.json").value();
}

std::unique_ptr<Engine> engine_of(const Json& golden, const ModelConfig& config,
                                  const char* runtime) {
  const auto checkpoint =
      make_synthetic(config, golden.at("name"), golden.at("seed").get<uint64_t>()).value();
  EngineOptions options;
  options.features = RuntimeFeatures::parse(runtime, DeviceKind::kCpu).value();
  options.max_sequence = 64;
  options.page_size = 4;  // so that short windows leave whole pages
  return make_engine(load_weights(checkpoint, WeightScheme::kF32).value(), options).value();
}

/// Largest difference from the reference over all positions, teacher-forced on its tokens.
double logit_error(const Json& golden, Engine& engine) {
  auto tokens = golden.at("prompt").get<std::vector<int32_t>>();
  const auto prompt = static_cast<int64_t>(tokens.size());
  const auto decoded = golden.at("tokens").get<std::vector<int32_t>>();
  tokens.insert(tokens.end(), decoded.begin(), decoded.end() - 1);
  const std::vector<float> expected = read_logits(golden.at("name"));
  double worst = 0;
  size_t compared = 0;
  const Status status = engine.score(tokens, prompt, [&](int64_t, std::span<const float> logits) {
    for (const float logit : logits) {
      worst = std::max(worst, std::abs(static_cast<double>(logit) -
                                       static_cast<double>(expected.at(compared++))));
    }
  });
  EXPECT_TRUE(status.has_value());
  EXPECT_EQ(compared, expected.size());
  return worst;
}

std::string case_name(const testing::TestParamInfo<size_t>& info) {
  return cases().at(info.param).at("name").get<std::string>();
}

class FamilyLogits : public testing::TestWithParam<size_t> {
 protected:
  const Json& golden() const { return cases().at(GetParam()); }
};

TEST_P(FamilyLogits, PrefillAndDecodeMatchTransformers) {
  for (const char* runtime : {"eager", "fast"}) {
    const double error = logit_error(golden(), *engine_of(golden(), config_of(golden()), runtime));
    EXPECT_LT(error, kTolerance) << runtime;
    std::printf("%s: max error %.5f\n", runtime, error);
  }
}

TEST_P(FamilyLogits, GreedyTokensAreTheReferences) {
  const auto expected = golden().at("tokens").get<std::vector<int32_t>>();
  const auto margins = golden().at("margins").get<std::vector<double>>();
  const Request request{golden().at("prompt").get<std::vector<int32_t>>(),
                        static_cast<int64_t>(expected.size()), true};
  for (const char* runtime : {"eager", "fast"}) {
    const auto result =
        engine_of(golden(), config_of(golden()), runtime)->generate({&request, 1}, nullptr);
    ASSERT_TRUE(result.has_value()) << result.error().to_string();
    const std::vector<int32_t>& tokens = result->requests[0].tokens;
    ASSERT_EQ(tokens.size(), expected.size());
    const auto differs = std::mismatch(tokens.begin(), tokens.end(), expected.begin()).first;
    const auto equal = static_cast<size_t>(differs - tokens.begin());
    // From a near tie on the texts may differ for a good reason.
    if (equal < expected.size()) {
      EXPECT_LT(margins[equal], 2 * kTolerance) << runtime << " token " << equal;
    }
    std::printf("%s: %zu of %zu tokens equal%s\n", runtime, equal, expected.size(),
                equal < expected.size() ? ", then a near tie" : "");
  }
}

/// The same weights run without one thing that the config asks for.
void expect_wrong_without(const Json& golden, const char* what, void (*remove)(ModelConfig&)) {
  ModelConfig config = config_of(golden);
  remove(config);
  EXPECT_GT(logit_error(golden, *engine_of(golden, config, "fast")), 10 * kTolerance) << what;
}

// The comparison above sees each of the things in which families differ.
TEST_P(FamilyLogits, NothingThatTheConfigAsksForCanBeLeftOut) {
  const ModelConfig config = config_of(golden());
  if (config.sliding_window > 0) {
    expect_wrong_without(golden(), "window", [](ModelConfig& c) { c.sliding_window = 0; });
    expect_wrong_without(golden(), "window + 1", [](ModelConfig& c) { ++c.sliding_window; });
  }
  if (config.qkv_bias) {
    expect_wrong_without(golden(), "bias", [](ModelConfig& c) { c.qkv_bias = false; });
  }
  if (config.qk_norm) {
    expect_wrong_without(golden(), "qk norm", [](ModelConfig& c) { c.qk_norm = false; });
  }
  if (config.rope_scaling.kind != RopeScalingKind::kNone) {
    expect_wrong_without(golden(), "rope scaling", [](ModelConfig& c) { c.rope_scaling = {}; });
  }
  expect_wrong_without(golden(), "pairing of the rotation",
                       [](ModelConfig& c) { c.rope_kind = RopeKind::kInterleaved; });
}

INSTANTIATE_TEST_SUITE_P(Cases, FamilyLogits, testing::Range<size_t>(0, cases().size()), case_name);

TEST(FamilyCases, EveryFamilyIsThere) {
  std::set<std::string> families;
  for (const Json& golden : cases()) families.insert(config_of(golden).architecture);
  EXPECT_EQ(families, (std::set<std::string>{"llama", "mistral", "qwen2", "qwen3"}));
}

}  // namespace
}  // namespace triptych
