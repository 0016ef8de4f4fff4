// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "kernels/common/sample_math.h"

namespace triptych {
namespace {

// Colder is greedy to any precision that logits have, hotter is uniform.
constexpr float kLowestTemperature = 1e-3f;
constexpr float kHighestTemperature = 1e3f;

std::string shortest(float value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

int32_t largest(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  return std::max(best, 0);
}

// The tokens that may be chosen by rank, the likeliest first where that matters.
std::vector<int32_t> candidates(std::span<const float> logits, const SamplingParams& params) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) tokens.push_back(static_cast<int32_t>(i));
  }
  const auto before = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto top_k = static_cast<size_t>(params.top_k);
  if (top_k > 0 && top_k < tokens.size()) {
    std::nth_element(tokens.begin(), tokens.begin() + params.top_k - 1, tokens.end(), before);
    tokens.resize(top_k);
  }
  if (params.top_p < 1.0f) std::sort(tokens.begin(), tokens.end(), before);
  return tokens;
}

}  // namespace

Status check_sampling(const SamplingParams& params) {
  const float t = params.temperature;
  if (t != 0.0f && !(t >= kLowestTemperature && t <= kHighestTemperature)) {
    return fail(ErrorCode::kInvalidArgument,
                "temperature " + shortest(t) + ": expected 0 (greedy) or 0.001 to 1000");
  }
  if (params.top_k < 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_format("top_k %d: expected 0 (all) or more", params.top_k));
  }
  if (!(params.top_p > 0.0f && params.top_p <= 1.0f)) {
    return fail(ErrorCode::kInvalidArgument,
                "top_p " + shortest(params.top_p) + ": expected above 0 and at most 1");
  }
  return {};
}

std::string to_string(const SamplingParams& params) {
  if (params.greedy()) return "greedy";
  return "temperature=" + shortest(params.temperature) + ",top_k=" + std::to_string(params.top_k) +
         ",top_p=" + shortest(params.top_p) + ",seed=" + std::to_string(params.seed);
}

int32_t sample_token(std::span<const float> logits, const SamplingParams& params, SampleKey key) {
  TRIPTYCH_CHECK(!logits.empty() && logits.size() <= static_cast<size_t>(kMaxSampleVocab),
                 "unsupported number of logits");
  if (params.greedy()) return largest(logits);
  std::vector<int32_t> tokens = candidates(logits, params);
  if (tokens.empty()) return 0;
  const float max = logits[static_cast<size_t>(largest(logits))];
  const float scale = sample_scale(params.temperature);
  const auto weight = [&](int32_t token) {
    return sample_weight(logits[static_cast<size_t>(token)], max, scale);
  };
  uint64_t total = 0;
  for (const int32_t token : tokens) total += weight(token);
  if (params.top_p < 1.0f) {
    const uint64_t wanted = top_p_target(params.top_p, total);
    size_t kept = 0;
    for (total = 0; total < wanted; ++kept) total += weight(tokens[kept]);
    tokens.resize(kept);
  }
  // By index, which threads that share the work can follow; the random number does not care.
  std::sort(tokens.begin(), tokens.end());
  uint64_t rest = sample_target(total, sample_bits(params.seed, key));
  for (const int32_t token : tokens) {
    const uint64_t mine = weight(token);
    if (rest < mine) return token;
    rest -= mine;
  }
  TRIPTYCH_CHECK(false, "the target is below the sum of the weights");
}

}  // namespace triptych
