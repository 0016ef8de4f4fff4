// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/scheduler.h"

namespace triptych {

namespace {

/// Closes the phase on every way out, so that a trace stays well-formed.
class PhaseScope {
 public:
  PhaseScope(ActivitySink* sink, PhaseKind kind, int64_t index, int64_t tokens) : sink_(sink) {
    if (sink_ != nullptr) sink_->begin_phase(kind, index, tokens, now_ns());
  }
  ~PhaseScope() {
    if (sink_ != nullptr) sink_->end_phase(now_ns());
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  ActivitySink* sink_;
};

class Generation {
 public:
  Generation(Executor& executor, const EngineOptions& options, std::span<const Request> requests,
             std::optional<int32_t> eos_token_id, ActivitySink* sink)
      : executor_(executor),
        requests_(requests),
        scheduler_(options.scheduler()),
        clients_(options.max_batch),
        eos_token_id_(eos_token_id),
        sink_(sink) {
    result_.requests.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto count = static_cast<size_t>(requests[i].max_new_tokens);
      result_.requests[i].tokens.reserve(count);
      result_.requests[i].token_ns.reserve(count);
      (requests[i].arrival_ns ? arrivals_ : closed_loop_).push_back(i);
    }
    std::stable_sort(arrivals_.begin(), arrivals_.end(), [&](size_t a, size_t b) {
      return *requests_[a].arrival_ns < *requests_[b].arrival_ns;
    });
  }

  GenerateResult run() {
    result_.start_ns = now_ns();
    for (int64_t client = 0; client < clients_; ++client) submit_next(result_.start_ns);
    while (true) {
      submit_arrivals();
      const Scheduler::Plan& plan = scheduler_.next();
      for (const Scheduler::Preemption& p : plan.preempted) {
        executor_.clear(p.slot);
        ++result_.requests[p.request].preemptions;
      }
      if (!plan.slices.empty()) {
        step(plan);
      } else if (next_arrival_ < arrivals_.size()) {
        sleep_until(arrival_ns(next_arrival_));
      } else if (scheduler_.idle()) {
        break;
      }
    }
    result_.end_ns = now_ns();
    return std::move(result_);
  }

 private:
  [[nodiscard]] int64_t arrival_ns(size_t index) const {
    return result_.start_ns + *requests_[arrivals_[index]].arrival_ns;
  }

  static void sleep_until(int64_t when_ns) {
    const int64_t left_ns = when_ns - now_ns();
    if (left_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
  }

  void submit(size_t index, int64_t at_ns) {
    result_.requests[index].submit_ns = at_ns;
    scheduler_.submit(static_cast<int64_t>(index),
                      static_cast<int64_t>(requests_[index].prompt.size()),
                      requests_[index].max_new_tokens);
  }
  /// The next request of a closed-loop client, if one is left.
  void submit_next(int64_t at_ns) {
    if (next_closed_ < closed_loop_.size()) submit(closed_loop_[next_closed_++], at_ns);
  }
  /// A request counts from the time at which it was due, however late a long step notices it.
  void submit_arrivals() {
    while (next_arrival_ < arrivals_.size() && arrival_ns(next_arrival_) <= now_ns()) {
      submit(arrivals_[next_arrival_], arrival_ns(next_arrival_));
      ++next_arrival_;
    }
  }

  /// Token `position` of a sequence: of its prompt, or one that it produced.
  [[nodiscard]] int32_t token(int64_t request, int64_t position) const {
    const std::vector<int32_t>& prompt = requests_[request].prompt;
    const auto length = static_cast<int64_t>(prompt.size());
    return position < length ? prompt[position]
                             : result_.requests[request].tokens[position - length];
  }

  void step(const Scheduler::Plan& plan) {
    fill(plan);
    const bool decode = plan.prompt_tokens == 0;
    const auto tokens = decode ? static_cast<int64_t>(plan.slices.size()) : plan.prompt_tokens;
    chosen_.resize(sampled_rows_.size());
    {
      const PhaseScope phase(sink_, decode ? PhaseKind::kDecode : PhaseKind::kPrefill,
                             decode ? result_.decode_steps : result_.prefill_steps, tokens);
      executor_.run({tokens_, positions_, sequences_}, sampled_rows_, chosen_);
      ++(decode ? result_.decode_steps : result_.prefill_steps);
      deliver(plan);
    }
  }

  /// Lays the rows of the plan's slices one after another.
  void fill(const Scheduler::Plan& plan) {
    tokens_.clear();
    positions_.clear();
    sequences_.clear();
    sampled_rows_.clear();
    const int64_t now = now_ns();
    for (const Scheduler::Slice& slice : plan.slices) {
      RequestResult& result = result_.requests[slice.request];
      if (slice.first_position == 0 && result.preemptions == 0) result.admit_ns = now;
      sequences_.push_back({slice.slot, slice.first_position, slice.num_tokens});
      for (int64_t i = 0; i < slice.num_tokens; ++i) {
        tokens_.push_back(token(slice.request, slice.first_position + i));
        positions_.push_back(static_cast<int32_t>(slice.first_position + i));
      }
      if (slice.samples) sampled_rows_.push_back(static_cast<int64_t>(tokens_.size()) - 1);
    }
  }

  /// Hands one token to each request that was sampled and retires those that are complete.
  void deliver(const Scheduler::Plan& plan) {
    const int64_t delivered_ns = now_ns();
    size_t sample = 0;
    for (const Scheduler::Slice& slice : plan.slices) {
      if (!slice.samples) continue;
      const int32_t token_id = chosen_[sample++];
      const Request& request = requests_[slice.request];
      RequestResult& result = result_.requests[slice.request];
      result.tokens.push_back(token_id);
      result.token_ns.push_back(delivered_ns);
      const bool stopped = !request.ignore_eos && token_id == eos_token_id_;
      if (!stopped && static_cast<int64_t>(result.tokens.size()) < request.max_new_tokens) {
        scheduler_.advance(slice.slot);
        continue;
      }
      scheduler_.finish(slice.slot);
      executor_.clear(slice.slot);
      if (!request.arrival_ns) submit_next(delivered_ns);
    }
  }

  Executor& executor_;
  std::span<const Request> requests_;
  Scheduler scheduler_;
  int64_t clients_;
  std::optional<int32_t> eos_token_id_;
  ActivitySink* sink_;
  GenerateResult result_;
  std::vector<size_t> closed_loop_;  // requests without an arrival time
  std::vector<size_t> arrivals_;     // requests with one, by time
  size_t next_closed_ = 0;
  size_t next_arrival_ = 0;
  // The current step, kept between steps so that the fast runtime allocates nothing.
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<StepSequence> sequences_;
  std::vector<int64_t> sampled_rows_;
  std::vector<int32_t> chosen_;
};

}  // namespace

GenerateResult run_generation(Executor& executor, const EngineOptions& options,
                              std::span<const Request> requests,
                              std::optional<int32_t> eos_token_id, ActivitySink* sink) {
  return Generation(executor, options, requests, eos_token_id, sink).run();
}

}  // namespace triptych
