// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Small random models of every family and what transformers computes with them in float32: the
// golden cases that tests/reference/families.py makes, and an engine compared with one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/hf_config.h"
#include "engine/json.h"
#include "engine/synthetic.h"
#include "engine/weights.h"
#include "tests/support/golden.h"

namespace triptych {

/// Cases with logits and 17 greedy tokens.
[[nodiscard]] inline const Json& family_cases() {
  static const Json json = [] {
    std::ifstream file(golden_dir() / "families" / "cases.json");
    return Json::parse(file).at("cases");
  }();
  return json;
}
/// Larger models with 64 greedy tokens and no logits.
[[nodiscard]] inline const Json& long_family_cases() {
  static const Json json = [] {
    std::ifstream file(golden_dir() / "families" / "long_cases.json");
    return Json::parse(file).at("cases");
  }();
  return json;
}

[[nodiscard]] inline std::string family_case_name(const testing::TestParamInfo<size_t>& info) {
  return family_cases().at(info.param).at("name").get<std::string>();
}
[[nodiscard]] inline std::string long_family_case_name(const testing::TestParamInfo<size_t>& info) {
  return long_family_cases().at(info.param).at("name").get<std::string>();
}

[[nodiscard]] inline ModelConfig family_config(const Json& golden) {
  return parse_hf_config(golden.at("config").dump(), golden.at("name"), "cases.json").value();
}

/// The case's numbers in a model of this config. They are f16 numbers: `kF16` is exact.
[[nodiscard]] inline std::shared_ptr<const ModelWeights> family_weights(const Json& golden,
                                                                        const ModelConfig& config,
                                                                        WeightScheme scheme) {
  const auto checkpoint =
      make_synthetic(config, golden.at("name"), golden.at("seed").get<uint64_t>()).value();
  return load_weights(checkpoint, scheme).value();
}

/// Of every position, [positions, vocab_size]. For family_cases() only.
[[nodiscard]] inline std::vector<float> family_logits(const Json& golden) {
  const auto name = golden.at("name").get<std::string>();
  std::ifstream file(golden_dir() / "families" / (name + ".f32"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> logits(bytes.size() / sizeof(float));
  std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
  return logits;
}

/// Visits the logits of every position, teacher-forced on the reference's tokens: the prompt at
/// once, then one by one.
inline void score_family(const Json& golden, Engine& engine, const LogitsVisitor& visit) {
  auto tokens = golden.at("prompt").get<std::vector<int32_t>>();
  const auto prompt = static_cast<int64_t>(tokens.size());
  const auto decoded = golden.at("tokens").get<std::vector<int32_t>>();
  tokens.insert(tokens.end(), decoded.begin(), decoded.end() - 1);
  const Status status = engine.score(tokens, prompt, visit);
  EXPECT_TRUE(status) << status.error().to_string();
}

/// Largest difference from the reference's logits over all positions.
[[nodiscard]] inline double family_logit_error(const Json& golden, Engine& engine) {
  const std::vector<float> expected = family_logits(golden);
  double worst = 0;
  size_t compared = 0;
  score_family(golden, engine, [&](int64_t, std::span<const float> logits) {
    for (const float logit : logits) {
      worst = std::max(worst, std::abs(static_cast<double>(logit) -
                                       static_cast<double>(expected.at(compared++))));
    }
  });
  EXPECT_EQ(compared, expected.size());
  return worst;
}

/// Teacher-forced choices that are not the reference's. Each must be a near tie there: the best two
/// may both be off by `tolerance` before their order is an error.
[[nodiscard]] inline int64_t other_choices(const Json& golden, Engine& engine, double tolerance) {
  const auto first = std::ssize(golden.at("prompt")) - 1;
  int64_t other = 0;
  score_family(golden, engine, [&](int64_t position, std::span<const float> logits) {
    if (position < first) return;
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    const auto step = static_cast<size_t>(position - first);
    if (best == golden.at("tokens").at(step).get<int64_t>()) return;
    ++other;
    EXPECT_LT(golden.at("margins").at(step).get<double>(), 2 * tolerance) << "token " << step;
  });
  return other;
}

/// How many tokens of a greedy generation are the reference's before the first that is not, which
/// must be a near tie as in other_choices(); from there on the texts may differ for a good reason.
[[nodiscard]] inline size_t greedy_tokens_equal(const Json& golden, Engine& engine,
                                                double tolerance) {
  const auto expected = golden.at("tokens").get<std::vector<int32_t>>();
  const Request request{golden.at("prompt").get<std::vector<int32_t>>(),
                        static_cast<int64_t>(expected.size()), true};
  const auto result = engine.generate({&request, 1}, nullptr);
  EXPECT_TRUE(result) << result.error().to_string();
  if (!result) return 0;
  const std::vector<int32_t>& tokens = result->requests[0].tokens;
  EXPECT_EQ(tokens.size(), expected.size());
  const auto differs =
      std::mismatch(tokens.begin(), tokens.end(), expected.begin(), expected.end()).first;
  const auto equal = static_cast<size_t>(differs - tokens.begin());
  if (equal < expected.size()) {
    EXPECT_LT(golden.at("margins").at(equal).get<double>(), 2 * tolerance) << "token " << equal;
  }
  return equal;
}

/// Something that a family's config asks for and that can be left out.
struct FamilyMutation {
  const char* what;
  void (*apply)(ModelConfig& config);
};
[[nodiscard]] inline std::vector<FamilyMutation> family_mutations(const ModelConfig& config) {
  std::vector<FamilyMutation> all = {
      {"pairing of the rotation", [](ModelConfig& c) { c.rope_kind = RopeKind::kInterleaved; }}};
  if (config.sliding_window > 0) {
    all.push_back({"window", [](ModelConfig& c) { c.sliding_window = 0; }});
    all.push_back({"window + 1", [](ModelConfig& c) { ++c.sliding_window; }});
  }
  if (config.qkv_bias) all.push_back({"bias", [](ModelConfig& c) { c.qkv_bias = false; }});
  if (config.qk_norm) all.push_back({"qk norm", [](ModelConfig& c) { c.qk_norm = false; }});
  if (config.rope_scaling.kind != RopeScalingKind::kNone) {
    all.push_back({"rope scaling", [](ModelConfig& c) { c.rope_scaling = {}; }});
  }
  return all;
}

}  // namespace triptych
