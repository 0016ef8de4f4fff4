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

// As the f32 that fields have: 0.001 itself is allowed.
constexpr auto kLowestTemperature = static_cast<float>(SamplingParams::kLowestTemperature);
constexpr auto kHighestTemperature = static_cast<float>(SamplingParams::kHighestTemperature);
constexpr auto kLowestTopP = static_cast<float>(SamplingParams::kLowestTopP);

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

struct Candidate {
  uint64_t weight;
  float logit;
  int32_t token;
};
using Candidates = std::vector<Candidate>;

bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

uint64_t sum_weights(Candidates::const_iterator begin, Candidates::const_iterator end) {
  uint64_t sum = 0;
  for (; begin != end; ++begin) sum += begin->weight;
  return sum;
}

// In order of token.
Candidates all_numbers(std::span<const float> logits, float max, float scale) {
  Candidates all;
  all.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    all.push_back({sample_weight(logits[i], max, scale), logits[i], static_cast<int32_t>(i)});
  }
  return all;
}

// Keeps the order of those that are left.
void keep_top_k(Candidates& candidates, int32_t top_k) {
  if (top_k == 0 || static_cast<size_t>(top_k) >= candidates.size()) return;
  Candidates ranked = candidates;
  const auto last = ranked.begin() + top_k - 1;
  std::nth_element(ranked.begin(), last, ranked.end(), before);
  std::erase_if(candidates, [&](const Candidate& c) { return before(*last, c); });
}

// Halves the range that holds the last candidate to keep: no full sort.
void keep_top_p(Candidates& candidates, float top_p) {
  if (top_p >= 1.0f) return;
  Candidates ranked = candidates;
  uint64_t wanted = top_p_target(top_p, sum_weights(ranked.begin(), ranked.end()));
  auto low = ranked.begin();
  auto high = ranked.end();
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, before);
    const uint64_t left = sum_weights(low, middle);
    if (left >= wanted) {
      high = middle;
    } else {
      wanted -= left;
      low = middle;
    }
  }
  const Candidate last = *low;
  std::erase_if(candidates, [&](const Candidate& c) { return before(last, c); });
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
  if (!(params.top_p >= kLowestTopP && params.top_p <= 1.0f)) {
    return fail(ErrorCode::kInvalidArgument,
                "top_p " + shortest(params.top_p) + ": expected 1e-06 to 1 (all)");
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
  const int32_t best = largest(logits);
  const float max = logits[static_cast<size_t>(best)];
  if (std::isnan(max)) return best;
  Candidates candidates = all_numbers(logits, max, sample_scale(params.temperature));
  keep_top_k(candidates, params.top_k);
  keep_top_p(candidates, params.top_p);
  // By index, which threads that share the work can follow; the random number does not care.
  const uint64_t total = sum_weights(candidates.begin(), candidates.end());
  uint64_t rest = sample_target(total, sample_bits(params.seed, key));
  auto chosen = candidates.begin();
  while (rest >= chosen->weight) rest -= (chosen++)->weight;
  return chosen->token;
}

}  // namespace triptych
