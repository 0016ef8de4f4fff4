// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// check_written_trace(); whole passes are in external_test.cpp and runner_test.cpp.
#include "experiments/traced_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace triptych {
namespace {

using ::testing::HasSubstr;

/// A prefill and two decode steps of 100 ns, with a product in the first half of each.
Trace three_phases() {
  Trace trace;
  trace.phases = {{PhaseKind::kPrefill, 0, 8, 1000, 1100},
                  {PhaseKind::kDecode, 0, 2, 1100, 1200},
                  {PhaseKind::kDecode, 1, 2, 1200, 1300}};
  const uint32_t name = trace.names.intern("nvjet");
  for (const Phase& phase : trace.phases) {
    trace.activities.push_back({.kind = ActivityKind::kKernel,
                                .name_id = name,
                                .start_ns = phase.start_ns,
                                .end_ns = phase.start_ns + 50});
  }
  return trace;
}

void move(Trace& trace, int64_t ns) {
  for (Activity& activity : trace.activities) {
    activity.start_ns += ns;
    activity.end_ns += ns;
  }
}

TEST(WrittenTrace, IsThatOfThePass) {
  EXPECT_TRUE(check_written_trace(three_phases(), 2));
  EXPECT_TRUE(check_written_trace(three_phases(), 3)) << "some steps may be left out";
  EXPECT_THAT(check_written_trace(three_phases(), 1).error().message,
              HasSubstr("2 decode steps, the pass had 1"));
  Trace without = three_phases();
  without.phases.resize(1);
  move(without, -100);
  EXPECT_THAT(check_written_trace(without, 2).error().message, HasSubstr("no decode step"));
  without.activities.resize(2);
  EXPECT_TRUE(check_written_trace(without, 0)) << "a pass of one token has none";
}

TEST(WrittenTrace, StepsSayTheirTokens) {
  Trace trace = three_phases();
  trace.phases[2].tokens = 0;
  EXPECT_THAT(check_written_trace(trace, 2).error().message,
              HasSubstr("decode step 1 says no number of tokens"));
}

TEST(WrittenTrace, HostCallsAreNoRecordsOfADevice) {
  Trace trace = three_phases();
  for (Activity& activity : trace.activities) activity.kind = ActivityKind::kRuntime;
  EXPECT_THAT(check_written_trace(trace, 2).error().message, HasSubstr("no record of a device"));
}

TEST(WrittenTrace, RecordsOnAnotherClockAreFound) {
  Trace trace = three_phases();
  move(trace, 100);  // one of three lies behind the phases
  EXPECT_TRUE(check_written_trace(trace, 2));
  move(trace, 100);
  EXPECT_THAT(check_written_trace(trace, 2).error().message, HasSubstr("67 % of its device time"));
  move(trace, -1'000'000'000);
  EXPECT_THAT(check_written_trace(trace, 2).error().message, HasSubstr("100 % of its device time"));
}

}  // namespace
}  // namespace triptych
