// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/agreement.h"

#include <algorithm>
#include <cmath>

#include "experiments/perplexity.h"
#include "kernels/cpu/ops.h"

namespace triptych {

namespace {

constexpr size_t kMaxRequests = 4;
constexpr int64_t kMaxOutputTokens = 64;
constexpr size_t kMaxPromptTokens = 1024;  // of all scored requests, but the first is one

int64_t argmax(std::span<const float> logits) {
  return cpu::argmax(logits.data(), std::ssize(logits));
}

/// Running sums of one engine over all scored requests.
struct Score {
  int64_t output_positions = 0;
  int64_t agreeing = 0;
  double max_error = 0;
  bool compared_logits = false;
  int64_t predictions = 0;
  double nll = 0;
  std::string error;
  bool device_lost = false;

  void fail(const Error& why) {
    error = why.to_string();
    device_lost = why.code == ErrorCode::kDeviceLost;
  }
};

/// The tokens of one request and what the baseline's logits were at its output positions.
struct Sequence {
  std::vector<int32_t> tokens;                ///< Prompt and output.
  int64_t first_output = 0;                   ///< Index of the first output token in `tokens`.
  std::vector<std::vector<float>> reference;  ///< [outputs, vocab_size]; empty if it gives none.
};

void score_position(int64_t position, std::span<const float> logits, bool is_baseline,
                    Sequence& sequence, Score& score) {
  const int32_t target = sequence.tokens[static_cast<size_t>(position) + 1];
  score.nll += negative_log_likelihood(logits, target);
  ++score.predictions;
  const int64_t output = position + 1 - sequence.first_output;
  if (output < 0) return;
  ++score.output_positions;
  if (is_baseline) sequence.reference.emplace_back(logits.begin(), logits.end());
  if (sequence.reference.empty()) {
    if (argmax(logits) == target) ++score.agreeing;
    return;
  }
  const std::vector<float>& reference = sequence.reference[static_cast<size_t>(output)];
  score.compared_logits = true;
  if (argmax(logits) == argmax(reference)) ++score.agreeing;
  for (size_t i = 0; i < logits.size(); ++i) {
    score.max_error = std::max(score.max_error, std::abs(static_cast<double>(logits[i]) -
                                                         static_cast<double>(reference[i])));
  }
}

void score_sequence(Engine& engine, bool is_baseline, Sequence& sequence, Score& score) {
  // The last token predicts nothing that is known, so it is not read. Output tokens are read by
  // decode steps: those are what is timed.
  const std::span<const int32_t> read(sequence.tokens.data(), sequence.tokens.size() - 1);
  const Status status = engine.score(
      read, sequence.first_output, [&](int64_t position, std::span<const float> logits) {
        score_position(position, logits, is_baseline, sequence, score);
      });
  if (!status) score.fail(status.error());
}

/// Compares what an engine without logits generates with what the baseline did.
void compare_tokens(Engine& engine, bool is_baseline, std::span<const Request> requests,
                    const GenerateResult& baseline, Score& score) {
  const Result<GenerateResult> own =
      is_baseline ? Result<GenerateResult>(baseline) : engine.generate(requests, nullptr);
  if (!own) {
    score.fail(own.error());
    return;
  }
  for (size_t r = 0; r < requests.size(); ++r) {
    const std::vector<int32_t>& expected = baseline.requests[r].tokens;
    const std::vector<int32_t>& found = own->requests[r].tokens;
    score.output_positions += static_cast<int64_t>(expected.size());
    for (size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
      if (expected[i] == found[i]) ++score.agreeing;
    }
  }
}

AgreementResult finish(const Score& score) {
  if (!score.error.empty()) return {std::nullopt, score.error, score.device_lost};
  if (score.output_positions == 0) return {std::nullopt, "the baseline gave no output to compare"};
  Agreement result;
  result.token_agreement =
      static_cast<double>(score.agreeing) / static_cast<double>(score.output_positions);
  if (score.compared_logits) result.max_logit_error = score.max_error;
  if (score.predictions > 0) {
    result.perplexity = std::exp(score.nll / static_cast<double>(score.predictions));
  }
  return {result, ""};
}

/// Of a comparison that ended with the device: whose it was, and that it says nothing of the
/// others.
std::vector<AgreementResult> cut_short(std::span<const Score> scores) {
  std::vector<AgreementResult> results;
  for (const Score& score : scores) {
    results.push_back({std::nullopt,
                       score.device_lost ? score.error : "the device was lost under another engine",
                       score.device_lost});
  }
  return results;
}

/// The requests that are scored: an engine may send the logits of every position as text.
std::vector<Request> choose_requests(std::span<const Request> requests) {
  std::vector<Request> chosen;
  size_t prompt_tokens = 0;
  for (const Request& request : requests) {
    prompt_tokens += request.prompt.size();
    if (chosen.size() == kMaxRequests) break;
    if (!chosen.empty() && prompt_tokens > kMaxPromptTokens) break;
    chosen.push_back(request);
    chosen.back().max_new_tokens = std::min(request.max_new_tokens, kMaxOutputTokens);
  }
  return chosen;
}

}  // namespace

std::vector<AgreementResult> measure_agreement(std::span<Engine* const> engines,
                                               std::span<const Request> requests) {
  const std::vector<Request> asked = choose_requests(requests);
  std::vector<Score> scores(engines.size());
  const Result<GenerateResult> output = engines.front()->generate(asked, nullptr);
  if (!output) {
    std::vector<AgreementResult> results(engines.size(),
                                         {std::nullopt, "baseline: " + output.error().to_string()});
    results.front().device_lost = output.error().code == ErrorCode::kDeviceLost;
    return results;
  }
  for (size_t e = 0; e < engines.size(); ++e) {
    if (!engines[e]->can_score()) compare_tokens(*engines[e], e == 0, asked, *output, scores[e]);
    if (scores[e].device_lost) return cut_short(scores);
  }
  for (size_t r = 0; r < asked.size(); ++r) {
    Sequence sequence;
    sequence.tokens = asked[r].prompt;
    sequence.first_output = static_cast<int64_t>(asked[r].prompt.size());
    const std::vector<int32_t>& tokens = output->requests[r].tokens;
    sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
    for (size_t e = 0; e < engines.size(); ++e) {
      if (!engines[e]->can_score() || !scores[e].error.empty()) continue;
      score_sequence(*engines[e], e == 0, sequence, scores[e]);
      if (scores[e].device_lost) return cut_short(scores);
      if (e == 0 && !scores[0].error.empty()) {  // nothing left to compare with
        const std::string error = "baseline: " + scores[0].error;
        for (Score& score : scores) score.error = error;
      }
    }
  }
  std::vector<AgreementResult> results;
  for (const Score& score : scores) results.push_back(finish(score));
  return results;
}

}  // namespace triptych
