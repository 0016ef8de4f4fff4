// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The real model and what transformers computes with its dequantized weights in float32: the golden
// cases that tests/reference/make_logits_golden.py makes, and an engine compared with them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/golden.h"

namespace triptych {

[[nodiscard]] inline const nlohmann::json& smollm_golden() {
  static const nlohmann::json json = [] {
    std::ifstream file(golden_dir() / "logits" / "smollm2.json");
    return nlohmann::json::parse(file);
  }();
  return json;
}

[[nodiscard]] inline double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

struct ReferenceError {
  double worst = 0;  ///< Of the sampled logits and of the logarithm of the softmax's sum.
  int steps = 0;
  int disagreeing = 0;  ///< Near ties decided differently.
};

/// Teacher-forced on the reference's tokens: the prompt at once, then one token a decode step. A
/// choice that is not the reference's must be a near tie there: the best two may each move by
/// `tolerance` before their order is an error.
[[nodiscard]] inline ReferenceError smollm_error(Engine& engine, double tolerance) {
  const auto sampled = smollm_golden().at("sampled_ids").get<std::vector<size_t>>();
  ReferenceError error;
  for (const nlohmann::json& reference : smollm_golden().at("cases")) {
    auto tokens = reference.at("prompt_ids").get<std::vector<int32_t>>();
    const auto prompt = static_cast<int64_t>(tokens.size());
    for (const nlohmann::json& step : reference.at("steps")) tokens.push_back(step.at("token"));
    tokens.pop_back();  // the last token's own logits are not in the reference
    const auto visit = [&](int64_t position, std::span<const float> logits) {
      if (position < prompt - 1) return;
      const nlohmann::json& step = reference.at("steps").at(position - prompt + 1);
      const auto compare = [&](double found, double expected) {
        error.worst = std::max(error.worst, std::abs(found - expected));
      };
      for (size_t i = 0; i < sampled.size(); ++i) {
        compare(static_cast<double>(logits[sampled[i]]), step.at("logits").at(i));
      }
      compare(log_sum_exp(logits), step.at("logsumexp"));
      ++error.steps;
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      if (best == step.at("token").get<int64_t>()) return;
      ++error.disagreeing;
      EXPECT_LT(step.at("margin").get<double>(), 2 * tolerance)
          << reference.at("text") << " position " << position;
    };
    const Status status = engine.score(tokens, prompt, visit);
    EXPECT_TRUE(status) << status.error().to_string();
  }
  return error;
}

struct GreedyMatch {
  int compared = 0;
  int ties = 0;  ///< Sequences left at a near tie: from there on the texts may differ.
};

/// Greedy generation, every token of it up to the first near tie that is decided differently.
[[nodiscard]] inline GreedyMatch smollm_greedy(Engine& engine, double tolerance) {
  GreedyMatch match;
  for (const nlohmann::json& reference : smollm_golden().at("cases")) {
    const nlohmann::json& steps = reference.at("steps");
    const Request request{reference.at("prompt_ids").get<std::vector<int32_t>>(), std::ssize(steps),
                          true};
    const GenerateResult result = engine.generate({&request, 1}, nullptr).value();
    for (size_t i = 0; i < steps.size(); ++i) {
      const int32_t token = result.requests[0].tokens[i];
      ++match.compared;
      if (token == steps[i].at("token").get<int32_t>()) continue;
      ++match.ties;
      EXPECT_LT(steps[i].at("margin").get<double>(), 2 * tolerance)
          << reference.at("text") << " step " << i << ": " << token;
      break;
    }
  }
  return match;
}

}  // namespace triptych
