// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <optional>
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

/// A step that was issued and whose tokens are not delivered yet.
struct Flight {
  struct Sample {
    int64_t request = 0;
    int64_t slot = 0;
  };
  PhaseKind kind = PhaseKind::kDecode;
  int64_t index = 0;   // of steps of its kind
  int64_t tokens = 0;  // read (prefill) or produced (decode)
  std::vector<Sample> samples;
};

class Generation {
 public:
  Generation(Executor& executor, const EngineOptions& options, std::span<const Request> requests,
             std::optional<int32_t> eos_token_id, ActivitySink* sink)
      : executor_(executor),
        requests_(requests),
        scheduler_(options.scheduler()),
        clients_(options.max_batch),
        on_device_(options.device != DeviceKind::kCpu),
        most_in_flight_(options.features.has(RuntimeFeature::kOverlap) ? 2 : 1),
        eos_token_id_(eos_token_id),
        sink_(sink) {
    result_.requests.resize(requests.size());
    states_.resize(requests.size());
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
      work_start_ns_ = now_ns();
      const Scheduler::Plan& plan = scheduler_.next();
      preempt(plan.preempted);
      if (launch(plan)) {
        const bool ends_now = sink_ != nullptr && flights_.back().samples.empty();
        while (std::ssize(flights_) >= (ends_now ? 1 : most_in_flight_)) deliver();
      } else if (!flights_.empty()) {
        deliver();
      } else if (next_arrival_ < arrivals_.size()) {
        sleep_until(arrival_ns(next_arrival_));
      } else if (scheduler_.idle()) {
        break;
      }
    }
    result_.end_ns = now_ns();
    if (on_device_) {
      result_.device_wait_ns = device_wait_ns_;
      result_.decode_host_ns = decode_host_ns_;
      result_.prefill_host_ns = prefill_host_ns_;
    }
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

  /// A preempted sequence reads its tokens again, so all of them must be known.
  void preempt(const std::vector<Scheduler::Preemption>& preempted) {
    for (const Scheduler::Preemption& p : preempted) {
      executor_.clear(p.slot);
      ++result_.requests[p.request].preemptions;
    }
    while (!preempted.empty() && !flights_.empty()) deliver();
  }

  /// Token `position` of a sequence in `slot`: of its prompt, or one that it produced; the newest
  /// may still be on the device.
  [[nodiscard]] int32_t token(const Scheduler::Slice& slice, int64_t position) const {
    const std::vector<int32_t>& prompt = requests_[slice.request].prompt;
    const std::vector<int32_t>& output = result_.requests[slice.request].tokens;
    const auto length = static_cast<int64_t>(prompt.size());
    if (position < length) return prompt[position];
    if (position - length < std::ssize(output)) return output[position - length];
    return static_cast<int32_t>(-1 - slice.slot);
  }

  /// Issues the planned step. False if there is nothing to compute.
  bool launch(const Scheduler::Plan& plan) {
    Flight flight = fill(plan);
    if (sequences_.empty()) return false;
    const bool first = flights_.empty();
    flights_.push_back(std::move(flight));
    if (first) open_phase();
    executor_.launch({tokens_, positions_, sequences_, sampled_});
    for (const Flight::Sample& sample : flights_.back().samples) schedule_next(sample);
    count_work(flights_.back().kind);
    return true;
  }

  /// Lays the rows of the plan's slices one after another.
  Flight fill(const Scheduler::Plan& plan) {
    tokens_.clear();
    positions_.clear();
    sequences_.clear();
    sampled_.clear();
    Flight flight;
    const int64_t now = now_ns();
    for (const Scheduler::Slice& slice : plan.slices) {
      if (states_[slice.request].ended) continue;  // its stop token came while it was preempted
      RequestResult& result = result_.requests[slice.request];
      if (slice.first_position == 0 && result.preemptions == 0) result.admit_ns = now;
      sequences_.push_back({slice.slot, slice.first_position, slice.num_tokens});
      const int64_t end = slice.first_position + slice.num_tokens;
      for (int64_t position = slice.first_position; position < end; ++position) {
        tokens_.push_back(token(slice, position));
        positions_.push_back(static_cast<int32_t>(position));
      }
      if (!slice.samples) continue;
      sampled_.push_back({std::ssize(tokens_) - 1,
                          static_cast<int32_t>(slice.slot),
                          {static_cast<int32_t>(slice.request), static_cast<int32_t>(end)}});
      flight.samples.push_back({slice.request, slice.slot});
    }
    const bool decode = plan.prompt_tokens == 0;
    flight.kind = decode ? PhaseKind::kDecode : PhaseKind::kPrefill;
    flight.tokens = decode ? std::ssize(sequences_) : plan.prompt_tokens;
    if (!sequences_.empty()) {
      flight.index = (decode ? result_.decode_steps : result_.prefill_steps)++;
    }
    return flight;
  }

  /// The scheduler goes on as if the token were known. A sequence that has all its tokens gives up
  /// its slot at once: what is issued from now on runs after this step.
  void schedule_next(const Flight::Sample& sample) {
    State& state = states_[sample.request];
    if (++state.issued < requests_[sample.request].max_new_tokens) {
      scheduler_.advance(sample.slot);
    } else {
      state.left = true;
      scheduler_.finish(sample.slot);
      executor_.clear(sample.slot);
    }
  }

  /// Hands the oldest step's tokens to their requests.
  void deliver() {
    const Flight flight = std::move(flights_.front());
    chosen_.resize(flight.samples.size());
    if (!chosen_.empty()) {
      const int64_t start_ns = now_ns();
      executor_.fetch(chosen_);
      const int64_t waited_ns = now_ns() - start_ns;
      device_wait_ns_ += waited_ns;
      work_start_ns_ += waited_ns;
    } else if (sink_ != nullptr) {
      // So that the phase ends with the step; there is no other one whose tokens would be lost.
      executor_.wait();
    }
    const int64_t delivered_ns = now_ns();
    for (size_t i = 0; i < flight.samples.size(); ++i) {
      take(flight.samples[i].request, chosen_[i], delivered_ns);
    }
    phase_.reset();
    flights_.pop_front();
    if (!flights_.empty()) open_phase();
    count_work(flight.kind);
  }

  /// What the host did since it last counted, waiting left out, was for a step of this kind.
  void count_work(PhaseKind kind) {
    const int64_t now = now_ns();
    (kind == PhaseKind::kDecode ? decode_host_ns_ : prefill_host_ns_) += now - work_start_ns_;
    work_start_ns_ = now;
  }

  void take(int64_t index, int32_t token_id, int64_t delivered_ns) {
    State& state = states_[index];
    if (state.ended) return;  // computed before its stop token was known
    const Request& request = requests_[index];
    RequestResult& result = result_.requests[index];
    result.tokens.push_back(token_id);
    result.token_ns.push_back(delivered_ns);
    const bool stopped = !request.ignore_eos && token_id == eos_token_id_;
    if (!stopped && std::ssize(result.tokens) < request.max_new_tokens) return;
    state.ended = true;
    if (!state.left) {
      const std::optional<int64_t> slot = scheduler_.cancel(index);
      if (slot) executor_.clear(*slot);
    }
    if (!request.arrival_ns) submit_next(delivered_ns);
  }

  void open_phase() {
    const Flight& flight = flights_.front();
    phase_.emplace(sink_, flight.kind, flight.index, flight.tokens);
  }

  struct State {
    int64_t issued = 0;  // tokens whose step was issued
    bool left = false;   // the scheduler knows it no more
    bool ended = false;  // all its tokens are delivered
  };

  Executor& executor_;
  std::span<const Request> requests_;
  Scheduler scheduler_;
  int64_t clients_;
  bool on_device_;
  int64_t most_in_flight_;
  std::optional<int32_t> eos_token_id_;
  ActivitySink* sink_;
  GenerateResult result_;
  std::vector<size_t> closed_loop_;  // requests without an arrival time
  std::vector<size_t> arrivals_;     // requests with one, by time
  size_t next_closed_ = 0;
  size_t next_arrival_ = 0;
  std::vector<State> states_;  // [requests]
  std::deque<Flight> flights_;
  int64_t device_wait_ns_ = 0;
  int64_t work_start_ns_ = 0;
  int64_t decode_host_ns_ = 0;
  int64_t prefill_host_ns_ = 0;
  std::optional<PhaseScope> phase_;  // of the oldest flight
  // The current step, kept between steps so that the fast runtime allocates nothing.
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<StepSequence> sequences_;
  std::vector<SampledRow> sampled_;
  std::vector<int32_t> chosen_;
};

}  // namespace

GenerateResult run_generation(Executor& executor, const EngineOptions& options,
                              std::span<const Request> requests,
                              std::optional<int32_t> eos_token_id, ActivitySink* sink) {
  return Generation(executor, options, requests, eos_token_id, sink).run();
}

}  // namespace triptych
