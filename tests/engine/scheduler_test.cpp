// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/random.h"

namespace triptych {
namespace {

struct Lengths {
  int64_t prompt = 1;
  int64_t output = 1;
};

/// What happened when requests were scheduled. The cache is imitated: every slice must continue
/// what its slot holds, and all slots together must fit the budget.
struct Schedule {
  std::vector<int64_t> first_read;            // requests in the order of their first token read
  std::vector<int64_t> finished;              // in order
  std::vector<std::vector<int64_t>> decodes;  // requests of each step that only decoded
  std::vector<int64_t> waiting;               // requests that waited at each such step
  std::vector<int64_t> prompt_tokens;         // of each step
  std::vector<int64_t> preempted;             // requests, in order
  int64_t mixed_steps = 0;                    // prompt tokens beside decoding sequences
};

class Simulation {
 public:
  /// Closed loop of `clients`; 0: all requests are submitted at once.
  Simulation(const SchedulerOptions& options, std::vector<Lengths> requests, int64_t clients)
      : options_(options),
        requests_(std::move(requests)),
        produced_(requests_.size()),
        scheduler_(options) {
    const auto all = static_cast<int64_t>(requests_.size());
    for (int64_t i = 0; i < (clients == 0 ? all : clients); ++i) submit_next();
  }

  Schedule run() {
    for (int step = 0; !scheduler_.idle(); ++step) {
      if (step == 100000) {
        ADD_FAILURE() << "the scheduler makes no progress";
        break;
      }
      take(scheduler_.next());
    }
    EXPECT_EQ(scheduler_.free_pages(), options_.num_pages) << "pages were lost";
    return std::move(schedule_);
  }

 private:
  void submit_next() {
    if (submitted_ == requests_.size()) return;
    const Lengths& lengths = requests_[submitted_];
    scheduler_.submit(static_cast<int64_t>(submitted_++), lengths.prompt, lengths.output);
  }

  void take(const Scheduler::Plan& plan) {
    for (const Scheduler::Preemption& p : plan.preempted) {
      schedule_.preempted.push_back(p.request);
      EXPECT_EQ(owner_[p.slot], p.request);
      cached_.erase(p.slot);
    }
    std::set<int64_t> slots;
    std::vector<int64_t> requests;
    int64_t prompt_tokens = 0;
    bool decoding = false;
    for (const Scheduler::Slice& slice : plan.slices) {
      EXPECT_GE(slice.slot, 0);
      EXPECT_LT(slice.slot, options_.max_batch);
      EXPECT_TRUE(slots.insert(slice.slot).second) << "two slices of one slot";
      EXPECT_EQ(slice.first_position, cached_[slice.slot]) << "a gap or an overlap in the cache";
      EXPECT_GE(slice.num_tokens, 1);
      owner_[slice.slot] = slice.request;
      cached_[slice.slot] += slice.num_tokens;
      const int64_t exist = requests_[slice.request].prompt + produced_[slice.request];
      EXPECT_LE(cached_[slice.slot], exist);
      EXPECT_EQ(slice.samples, cached_[slice.slot] == exist);
      if (slice.first_position == 0 && produced_[slice.request] == 0 &&
          first_read_.insert(slice.request).second) {
        schedule_.first_read.push_back(slice.request);
      }
      requests.push_back(slice.request);
      if (reading_.contains(slice.request) || slice.first_position == 0) {
        prompt_tokens += slice.num_tokens;
        reading_.insert(slice.request);
      } else {
        decoding = true;
      }
      if (slice.samples) reading_.erase(slice.request);
    }
    check_budget();
    EXPECT_EQ(plan.prompt_tokens, prompt_tokens);
    schedule_.prompt_tokens.push_back(prompt_tokens);
    if (prompt_tokens > 0 && decoding) ++schedule_.mixed_steps;
    if (prompt_tokens == 0 && decoding) {
      schedule_.decodes.push_back(requests);
      schedule_.waiting.push_back(scheduler_.num_waiting());
    }
    const std::vector<Scheduler::Slice> slices = plan.slices;
    for (const Scheduler::Slice& slice : slices) {
      if (slice.samples) token(slice);
    }
  }

  void check_budget() const {
    int64_t pages = 0;
    for (const auto& [slot, tokens] : cached_) pages += scheduler_.pages(tokens);
    EXPECT_LE(pages, options_.num_pages);
  }

  void token(const Scheduler::Slice& slice) {
    if (++produced_[slice.request] < requests_[slice.request].output) {
      scheduler_.advance(slice.slot);
      return;
    }
    scheduler_.finish(slice.slot);
    cached_.erase(slice.slot);
    schedule_.finished.push_back(slice.request);
    submit_next();
  }

  SchedulerOptions options_;
  std::vector<Lengths> requests_;
  std::vector<int64_t> produced_;
  Scheduler scheduler_;
  Schedule schedule_;
  size_t submitted_ = 0;
  std::map<int64_t, int64_t> cached_;  // slot -> tokens
  std::map<int64_t, int64_t> owner_;   // slot -> request
  std::set<int64_t> reading_;          // requests whose prompt is not whole in the cache
  std::set<int64_t> first_read_;
};

std::vector<Lengths> random_requests(RandomStream& random) {
  std::vector<Lengths> requests(random.below(12));
  for (Lengths& r : requests) {
    r.prompt = 1 + static_cast<int64_t>(random.below(20));
    r.output = 1 + static_cast<int64_t>(random.below(9));
  }
  return requests;
}

SchedulerOptions random_options(RandomStream& random, const std::vector<Lengths>& requests) {
  SchedulerOptions options;
  options.batch = random.below(2) == 0 ? BatchPolicy::kStatic : BatchPolicy::kContinuous;
  options.kv = random.below(2) == 0 ? KvPolicy::kReserve : KvPolicy::kOnDemand;
  options.max_batch = 1 + static_cast<int64_t>(random.below(5));
  options.page_size = 1 + static_cast<int64_t>(random.below(6));
  options.prefill_chunk = static_cast<int64_t>(random.below(3)) * 4;
  int64_t longest = 1;
  for (const Lengths& r : requests) longest = std::max(longest, r.prompt + r.output);
  // From a budget for one request, where everything has to wait, to one where nothing does.
  const int64_t one = (longest + options.page_size - 1) / options.page_size;
  options.num_pages = one + static_cast<int64_t>(random.below(static_cast<uint64_t>(3 * one)));
  return options;
}

/// Outputs only: prompts of one token and memory for everyone.
Schedule simulate(BatchPolicy policy, const std::vector<int64_t>& outputs, int64_t max_batch) {
  std::vector<Lengths> requests;
  for (const int64_t output : outputs) requests.push_back({1, output});
  return Simulation({.batch = policy, .max_batch = max_batch, .num_pages = 1000}, requests,
                    max_batch)
      .run();
}

TEST(Scheduler, EveryRequestRunsToItsEndUnderEveryPolicy) {
  RandomStream random(1);
  int64_t preempted = 0;
  int64_t mixed = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<Lengths> requests = random_requests(random);
    const SchedulerOptions options = random_options(random, requests);
    const auto clients = static_cast<int64_t>(random.below(2)) * options.max_batch;
    const Schedule schedule = Simulation(options, requests, clients).run();
    ASSERT_EQ(schedule.finished.size(), requests.size()) << "trial " << trial;
    EXPECT_EQ(std::set<int64_t>(schedule.finished.begin(), schedule.finished.end()).size(),
              requests.size());
    EXPECT_TRUE(std::is_sorted(schedule.first_read.begin(), schedule.first_read.end()))
        << "a request overtook another";
    if (options.kv == KvPolicy::kReserve) {
      EXPECT_TRUE(schedule.preempted.empty());
    }
    for (const int64_t tokens : schedule.prompt_tokens) {
      if (options.prefill_chunk > 0) {
        EXPECT_LE(tokens, options.prefill_chunk);
      }
    }
    if (options.prefill_chunk == 0) {
      EXPECT_EQ(schedule.mixed_steps, 0);
    }
    preempted += static_cast<int64_t>(schedule.preempted.size());
    mixed += schedule.mixed_steps;
  }
  EXPECT_GT(preempted, 100) << "the trials must reach what they test";
  EXPECT_GT(mixed, 100);
}

TEST(Scheduler, ContinuousNeverLeavesASlotEmptyWhileARequestWaits) {
  RandomStream random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t max_batch = 1 + static_cast<int64_t>(random.below(5));
    std::vector<int64_t> outputs(random.below(12));
    for (int64_t& output : outputs) output = 1 + static_cast<int64_t>(random.below(6));
    const Schedule s = simulate(BatchPolicy::kContinuous, outputs, max_batch);
    for (size_t i = 0; i < s.decodes.size(); ++i) {
      if (s.waiting[i] > 0) {
        EXPECT_EQ(static_cast<int64_t>(s.decodes[i].size()), max_batch);
      }
    }
  }
}

TEST(Scheduler, StaticNeverMixesGroups) {
  RandomStream random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t max_batch = 1 + static_cast<int64_t>(random.below(5));
    std::vector<int64_t> outputs(random.below(12));
    for (int64_t& output : outputs) output = 1 + static_cast<int64_t>(random.below(6));
    const Schedule s = simulate(BatchPolicy::kStatic, outputs, max_batch);
    int64_t expected_steps = 0;
    for (size_t first = 0; first < outputs.size(); first += static_cast<size_t>(max_batch)) {
      const size_t last = std::min(outputs.size(), first + static_cast<size_t>(max_batch));
      expected_steps += *std::max_element(outputs.begin() + first, outputs.begin() + last) - 1;
    }
    EXPECT_EQ(static_cast<int64_t>(s.decodes.size()), expected_steps);
    for (const auto& step : s.decodes) {
      for (const int64_t request : step) {
        EXPECT_EQ(request / max_batch, step.front() / max_batch);
      }
    }
  }
}

TEST(Scheduler, StaticGroupThatEndsInPrefillMakesWayForTheNext) {
  const Schedule s = simulate(BatchPolicy::kStatic, {1, 1, 3, 2}, 2);
  EXPECT_EQ(s.decodes, (std::vector<std::vector<int64_t>>{{2, 3}, {2}}));
}

TEST(Scheduler, ContinuousRefillsAtOnce) {
  const Schedule s = simulate(BatchPolicy::kContinuous, {3, 2, 2}, 2);
  EXPECT_EQ(s.decodes, (std::vector<std::vector<int64_t>>{{0, 1}, {0, 2}}));
}

TEST(Scheduler, ChunksReadALongPromptBesideDecoding) {
  Scheduler scheduler({.max_batch = 2, .num_pages = 100, .prefill_chunk = 4});
  scheduler.submit(0, 2, 10);
  EXPECT_EQ(scheduler.next().slices.size(), 1u);  // reads its prompt and samples
  scheduler.advance(0);
  scheduler.submit(1, 9, 1);
  for (const int64_t expected : {4, 4, 1}) {
    const Scheduler::Plan& plan = scheduler.next();
    ASSERT_EQ(plan.slices.size(), 2u);
    EXPECT_EQ(plan.prompt_tokens, expected);
    EXPECT_EQ(plan.slices[0].request, 1);
    EXPECT_EQ(plan.slices[0].samples, expected == 1);
    EXPECT_EQ(plan.slices[1].request, 0);
    EXPECT_TRUE(plan.slices[1].samples);
    scheduler.advance(plan.slices[1].slot);
  }
}

TEST(Scheduler, ShortPromptsShareAChunk) {
  Scheduler scheduler({.max_batch = 4, .num_pages = 100, .prefill_chunk = 8});
  for (int64_t request = 0; request < 4; ++request) scheduler.submit(request, 3, 2);
  const Scheduler::Plan& plan = scheduler.next();
  ASSERT_EQ(plan.slices.size(), 3u);
  EXPECT_EQ(plan.prompt_tokens, 8);
  EXPECT_EQ(plan.slices[2].num_tokens, 2);  // the third begins in this chunk
  EXPECT_FALSE(plan.slices[2].samples);
}

TEST(Scheduler, TheLastAdmittedIsPreemptedAndComesBackFirst) {
  // Two pages of 4 tokens: both prompts of 3 fit, but neither may grow past its page beside the
  // other.
  Scheduler scheduler({.max_batch = 2, .page_size = 4, .num_pages = 2});
  scheduler.submit(0, 3, 4);
  scheduler.submit(1, 3, 4);
  scheduler.submit(2, 1, 1);
  for (int prefill = 0; prefill < 2; ++prefill) {
    ASSERT_EQ(scheduler.next().slices.size(), 1u);
    scheduler.advance(prefill);
  }
  ASSERT_EQ(scheduler.next().slices.size(), 2u);  // tokens 4 of both fill their pages
  scheduler.advance(0);
  scheduler.advance(1);
  const Scheduler::Plan& plan = scheduler.next();
  ASSERT_EQ(plan.preempted.size(), 1u);
  EXPECT_EQ(plan.preempted[0].request, 1);
  ASSERT_EQ(plan.slices.size(), 1u);
  EXPECT_EQ(plan.slices[0].request, 0);
  EXPECT_EQ(scheduler.num_waiting(), 2);
  scheduler.finish(0);
  const Scheduler::Plan& again = scheduler.next();
  ASSERT_EQ(again.slices.size(), 1u);
  EXPECT_EQ(again.slices[0].request, 1) << "before request 2, which waited behind it";
  EXPECT_EQ(again.slices[0].num_tokens, 5) << "its prompt and the two tokens that it had";
}

TEST(Scheduler, ReservationKeepsRoomForTheWholeOutput) {
  Scheduler scheduler({.kv = KvPolicy::kReserve, .max_batch = 2, .num_pages = 10});
  scheduler.submit(0, 3, 4);
  scheduler.submit(1, 3, 1);
  EXPECT_EQ(scheduler.next().slices.size(), 1u);
  EXPECT_EQ(scheduler.free_pages(), 3);
  scheduler.advance(0);
  EXPECT_EQ(scheduler.next().prompt_tokens, 0) << "request 1 needs four";
  EXPECT_EQ(scheduler.num_waiting(), 1);
}

TEST(SchedulerCancel, ARunningRequestGivesItsSlotAndPagesToTheNext) {
  Scheduler scheduler({.max_batch = 2, .page_size = 4, .num_pages = 4});
  for (int64_t request = 0; request < 3; ++request) scheduler.submit(request, 5, 3);
  for (int64_t slot = 0; slot < 2; ++slot) {
    ASSERT_EQ(scheduler.next().slices.size(), 1u);
    scheduler.advance(slot);
  }
  EXPECT_EQ(scheduler.free_pages(), 0);
  EXPECT_EQ(scheduler.cancel(0), std::optional<int64_t>(0));
  EXPECT_EQ(scheduler.free_pages(), 2);
  EXPECT_EQ(scheduler.num_running(), 1);
  const Scheduler::Plan& plan = scheduler.next();
  ASSERT_EQ(plan.slices.size(), 1u);
  EXPECT_EQ(plan.slices[0].request, 2);
  EXPECT_EQ(plan.slices[0].slot, 0);
  EXPECT_EQ(plan.slices[0].first_position, 0) << "nothing of request 0 may be taken for its own";
}

TEST(SchedulerCancel, AHalfReadPromptEnds) {
  Scheduler scheduler({.max_batch = 2, .num_pages = 100, .prefill_chunk = 4});
  scheduler.submit(0, 9, 2);
  scheduler.submit(1, 3, 2);
  EXPECT_EQ(scheduler.next().prompt_tokens, 4);
  EXPECT_EQ(scheduler.cancel(0), std::optional<int64_t>(0));
  const Scheduler::Plan& plan = scheduler.next();
  ASSERT_EQ(plan.slices.size(), 1u);
  EXPECT_EQ(plan.slices[0].request, 1);
  EXPECT_EQ(plan.prompt_tokens, 3);
}

TEST(SchedulerCancel, AWaitingRequestHasNoSlotAndTheOthersKeepTheirOrder) {
  Scheduler scheduler({.max_batch = 1, .num_pages = 10});
  for (int64_t request = 0; request < 4; ++request) scheduler.submit(request, 2, 1);
  ASSERT_EQ(scheduler.next().slices.size(), 1u);
  EXPECT_EQ(scheduler.cancel(2), std::nullopt);
  EXPECT_EQ(scheduler.num_waiting(), 2);
  scheduler.finish(0);
  EXPECT_EQ(scheduler.next().slices.at(0).request, 1);
  scheduler.finish(0);
  EXPECT_EQ(scheduler.next().slices.at(0).request, 3);
  scheduler.finish(0);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(scheduler.free_pages(), 10);
}

TEST(SchedulerCancel, APreemptedRequestDoesNotComeBack) {
  Scheduler scheduler({.max_batch = 2, .page_size = 4, .num_pages = 2});
  scheduler.submit(0, 3, 4);
  scheduler.submit(1, 3, 4);
  for (int64_t slot = 0; slot < 2; ++slot) {
    ASSERT_EQ(scheduler.next().slices.size(), 1u);
    scheduler.advance(slot);
  }
  ASSERT_EQ(scheduler.next().slices.size(), 2u);
  scheduler.advance(0);
  scheduler.advance(1);
  ASSERT_EQ(scheduler.next().preempted.size(), 1u);
  EXPECT_EQ(scheduler.cancel(1), std::nullopt) << "its slot is free already";
  EXPECT_EQ(scheduler.num_waiting(), 0);
  scheduler.finish(0);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_TRUE(scheduler.next().slices.empty());
  EXPECT_EQ(scheduler.free_pages(), 2);
}

TEST(SchedulerCancel, AnUnknownRequestChangesNothing) {
  Scheduler scheduler({.max_batch = 1, .num_pages = 10});
  EXPECT_EQ(scheduler.cancel(0), std::nullopt);
  scheduler.submit(0, 2, 1);
  ASSERT_EQ(scheduler.next().slices.size(), 1u);
  scheduler.finish(0);
  scheduler.submit(1, 2, 1);
  EXPECT_EQ(scheduler.cancel(0), std::nullopt) << "it has finished";
  EXPECT_EQ(scheduler.cancel(7), std::nullopt);
  EXPECT_EQ(scheduler.num_waiting(), 1);
  EXPECT_EQ(scheduler.free_pages(), 10);
}

// A static group that loses a member while it waits still makes way for the next.
TEST(SchedulerCancel, AStaticGroupEndsWithoutItsCancelledMembers) {
  Scheduler scheduler({.batch = BatchPolicy::kStatic, .max_batch = 2, .num_pages = 100});
  for (int64_t request = 0; request < 4; ++request) scheduler.submit(request, 2, 2);
  EXPECT_EQ(scheduler.next().slices.at(0).request, 0);
  scheduler.advance(0);
  EXPECT_EQ(scheduler.cancel(1), std::nullopt);
  std::vector<int64_t> finished;
  for (int step = 0; step < 100 && !scheduler.idle(); ++step) {
    const std::vector<Scheduler::Slice> slices = scheduler.next().slices;
    for (const Scheduler::Slice& slice : slices) {
      if (slice.first_position == 0) {
        scheduler.advance(slice.slot);
      } else {
        finished.push_back(slice.request);
        scheduler.finish(slice.slot);
      }
    }
  }
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(finished.size(), 3u);
  EXPECT_EQ(scheduler.free_pages(), 100);
}

TEST(SchedulerDeathTest, MisuseIsABug) {
  Scheduler scheduler({.max_batch = 1, .page_size = 4, .num_pages = 2});
  EXPECT_DEATH(scheduler.finish(0), "no sequence runs in");
  EXPECT_DEATH(scheduler.submit(0, 8, 1), "never run");
}

}  // namespace
}  // namespace triptych
