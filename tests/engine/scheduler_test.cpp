// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/random.h"

namespace triptych {
namespace {

/// What happened when requests of given lengths (tokens, the prefill's included) were scheduled.
struct Schedule {
  std::vector<int64_t> admitted;
  std::vector<int64_t> finished;
  std::vector<std::vector<int64_t>> steps;  // requests decoded together
  std::vector<int64_t> waiting;             // requests not yet admitted at each step
};

Schedule simulate(BatchPolicy policy, std::vector<int64_t> left, int64_t max_batch) {
  Scheduler scheduler(policy, static_cast<int64_t>(left.size()), max_batch);
  Schedule schedule;
  const auto token = [&](Scheduler::Admission a) {
    if (--left[a.request] > 0) return;
    schedule.finished.push_back(a.request);
    scheduler.finish(a.slot);
  };
  while (!scheduler.done()) {
    while (const auto a = scheduler.admit()) {
      schedule.admitted.push_back(a->request);
      token(*a);
    }
    const std::vector<Scheduler::Admission> batch(scheduler.active().begin(),
                                                  scheduler.active().end());
    if (batch.empty()) continue;
    std::vector<int64_t> requests;
    std::set<int64_t> slots;
    for (const Scheduler::Admission& a : batch) {
      requests.push_back(a.request);
      slots.insert(a.slot);
      EXPECT_GE(a.slot, 0);
      EXPECT_LT(a.slot, max_batch);
    }
    EXPECT_EQ(slots.size(), batch.size()) << "two sequences in one slot";
    schedule.steps.push_back(requests);
    schedule.waiting.push_back(static_cast<int64_t>(left.size() - schedule.admitted.size()));
    for (const Scheduler::Admission& a : batch) token(a);
  }
  return schedule;
}

std::vector<int64_t> random_lengths(RandomStream& random) {
  std::vector<int64_t> lengths(random.below(12));
  for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random.below(6));
  return lengths;
}

TEST(Scheduler, EveryRequestRunsOnceInOrderOfSubmission) {
  RandomStream random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const std::vector<int64_t> lengths = random_lengths(random);
    const int64_t max_batch = 1 + static_cast<int64_t>(random.below(5));
    for (const BatchPolicy policy : {BatchPolicy::kStatic, BatchPolicy::kContinuous}) {
      const Schedule schedule = simulate(policy, lengths, max_batch);
      ASSERT_EQ(schedule.admitted.size(), lengths.size());
      for (size_t i = 0; i < lengths.size(); ++i) {
        EXPECT_EQ(schedule.admitted[i], static_cast<int64_t>(i));
      }
      EXPECT_EQ(std::set<int64_t>(schedule.finished.begin(), schedule.finished.end()).size(),
                lengths.size());
      std::vector<int64_t> decoded(lengths.size(), 1);  // the prefill gave the first token
      for (const auto& step : schedule.steps) {
        for (const int64_t request : step) ++decoded[request];
      }
      EXPECT_EQ(decoded, lengths);
    }
  }
}

TEST(Scheduler, ContinuousNeverLeavesASlotEmptyWhileARequestWaits) {
  RandomStream random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t max_batch = 1 + static_cast<int64_t>(random.below(5));
    const Schedule s = simulate(BatchPolicy::kContinuous, random_lengths(random), max_batch);
    for (size_t i = 0; i < s.steps.size(); ++i) {
      if (s.waiting[i] > 0) {
        EXPECT_EQ(static_cast<int64_t>(s.steps[i].size()), max_batch);
      }
    }
  }
}

TEST(Scheduler, StaticNeverMixesGroups) {
  RandomStream random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t max_batch = 1 + static_cast<int64_t>(random.below(5));
    const std::vector<int64_t> lengths = random_lengths(random);
    const Schedule s = simulate(BatchPolicy::kStatic, lengths, max_batch);
    int64_t expected_steps = 0;
    for (size_t first = 0; first < lengths.size(); first += static_cast<size_t>(max_batch)) {
      int64_t longest = 0;
      for (size_t i = first; i < std::min(lengths.size(), first + max_batch); ++i) {
        longest = std::max(longest, lengths[i]);
      }
      expected_steps += longest - 1;
    }
    EXPECT_EQ(static_cast<int64_t>(s.steps.size()), expected_steps);
    for (const auto& step : s.steps) {
      for (const int64_t request : step) {
        EXPECT_EQ(request / max_batch, step.front() / max_batch);
      }
    }
  }
}

TEST(Scheduler, StaticGroupThatEndsInPrefillMakesWayForTheNext) {
  const Schedule s = simulate(BatchPolicy::kStatic, {1, 1, 3, 2}, 2);
  EXPECT_EQ(s.steps, (std::vector<std::vector<int64_t>>{{2, 3}, {2}}));
}

TEST(Scheduler, ContinuousRefillsAtOnce) {
  const Schedule s = simulate(BatchPolicy::kContinuous, {3, 2, 2}, 2);
  EXPECT_EQ(s.steps, (std::vector<std::vector<int64_t>>{{0, 1}, {0, 2}}));
}

TEST(SchedulerDeathTest, FinishingAnIdleSlotIsABug) {
  Scheduler scheduler(BatchPolicy::kStatic, 1, 1);
  EXPECT_DEATH(scheduler.finish(0), "not active");
}

}  // namespace
}  // namespace triptych
