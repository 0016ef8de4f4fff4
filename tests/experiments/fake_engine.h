// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// FakeEngine: an engine whose times are arithmetic, so that a test knows every result beforehand.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/engine.h"

namespace triptych::test {

/// What a fake does; times are invented, nothing sleeps.
struct FakeBehaviour {
  int64_t ttft_ns = 8000;
  int64_t tpot_ns = 4000;
  float logit_shift = 0;  ///< Added to the logit of token 0.
  int64_t weight_bytes = 1000;
  /// Called before each generate(); an error ends it.
  std::function<Status(bool traced)> before_generate = [](bool) { return Status{}; };
};

inline constexpr size_t kFakeVocab = 8;

class FakeEngine final : public Engine {
 public:
  FakeEngine(FakeBehaviour behaviour, const EngineOptions& options)
      : behaviour_(std::move(behaviour)), options_(options) {}

  Result<GenerateResult> generate(std::span<const Request> requests, ActivitySink* sink) override {
    TRIPTYCH_RETURN_IF_ERROR(behaviour_.before_generate(sink != nullptr));
    GenerateResult result;
    result.start_ns = now_ns();
    for (const Request& request : requests) {
      RequestResult answer;
      answer.submit_ns = result.start_ns;
      answer.admit_ns = result.start_ns;
      for (int64_t k = 0; k < request.max_new_tokens; ++k) {
        answer.token_ns.push_back(result.start_ns + behaviour_.ttft_ns + k * behaviour_.tpot_ns);
        answer.tokens.push_back(static_cast<int32_t>(k % 3));
      }
      result.end_ns = std::max(result.end_ns, answer.token_ns.back());
      result.decode_steps = std::max(result.decode_steps, request.max_new_tokens - 1);
      result.requests.push_back(std::move(answer));
    }
    if (sink != nullptr) trace(result, static_cast<int64_t>(requests.size()), *sink);
    return result;
  }

  Status score(std::span<const int32_t> tokens, int64_t, const LogitsVisitor& visit) override {
    std::vector<float> logits(kFakeVocab, 0.0F);
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::fill(logits.begin(), logits.end(), 0.0F);
      logits[i % kFakeVocab] = 1.0F;
      logits[0] += behaviour_.logit_shift;
      visit(static_cast<int64_t>(i), logits);
    }
    return {};
  }

  EngineMemory memory() const override { return {behaviour_.weight_bytes, 200, 30}; }
  KernelCost decode_step_cost(int64_t batch, int64_t context) const override {
    return {
        .bytes_read = behaviour_.weight_bytes + batch * context, .bytes_written = 0, .flops = 1};
  }
  std::string kernel_choice(int64_t) const override { return "q=fake"; }
  const EngineOptions& options() const override { return options_; }

 private:
  /// Three quarters of every phase are a matrix product, the rest is a gap.
  void trace(const GenerateResult& result, int64_t batch, ActivitySink& sink) const {
    const std::vector<int64_t>& times = result.requests.front().token_ns;
    int64_t start = result.start_ns;
    for (size_t k = 0; k < times.size(); ++k) {
      const PhaseKind kind = k == 0 ? PhaseKind::kPrefill : PhaseKind::kDecode;
      sink.begin_phase(kind, k == 0 ? 0 : static_cast<int64_t>(k) - 1, batch, start);
      sink.record({.kind = ActivityKind::kKernel,
                   .name = "gemv_f16",
                   .start_ns = start,
                   .end_ns = start + (times[k] - start) * 3 / 4});
      sink.end_phase(times[k]);
      start = times[k];
    }
  }

  FakeBehaviour behaviour_;
  EngineOptions options_;
};

}  // namespace triptych::test
