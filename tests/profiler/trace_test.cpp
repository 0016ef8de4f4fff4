// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/trace.h"

#include <gtest/gtest.h>

#include <string>

namespace triptych {
namespace {

TEST(NameTable, GivesOneIdToEachName) {
  NameTable names;
  EXPECT_EQ(names.intern("gemv"), 0u);
  EXPECT_EQ(names.intern("add"), 1u);
  std::string again = "gemv";
  EXPECT_EQ(names.intern(again), 0u);
  again = "changed";  // the table keeps its own copy
  EXPECT_EQ(names.intern(""), 2u);
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(names[0], "gemv");
  EXPECT_EQ(names[2], "");
}

TEST(NameTable, KeepsIdsWhileItGrows) {
  NameTable names;
  for (int i = 0; i < 5000; ++i) names.intern(std::to_string(i));
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(names.intern(std::to_string(i)), static_cast<uint32_t>(i));
    ASSERT_EQ(names[static_cast<uint32_t>(i)], std::to_string(i));
  }
}

Activity activity(int64_t start_ns, int64_t end_ns, int32_t stream_id = 0) {
  return {.stream_id = stream_id, .start_ns = start_ns, .end_ns = end_ns};
}

TEST(TraceFinish, OrdersByStartAndLongestFirst) {
  Trace trace;
  trace.activities = {activity(20, 30), activity(10, 12, 1), activity(10, 40), activity(10, 12, 2)};
  trace.phases = {{PhaseKind::kDecode, 1, 1, 20, 30}, {PhaseKind::kDecode, 0, 1, 10, 20}};
  ASSERT_TRUE(trace.finish());
  EXPECT_EQ(trace.activities[0].end_ns, 40);
  EXPECT_EQ(trace.activities[1].stream_id, 1);  // ties keep their order
  EXPECT_EQ(trace.activities[2].stream_id, 2);
  EXPECT_EQ(trace.activities[3].start_ns, 20);
  EXPECT_EQ(trace.phases[0].index, 0);
}

TEST(TraceFinish, CountsOddRecordsOnce) {
  Trace trace;
  trace.activities = {activity(0, 0), activity(5, 4), activity(7, 7), activity(0, 3),
                      activity(9, 1)};
  trace.quality.dropped = 4;
  trace.quality.unlinked = 2;
  for (int repeat = 0; repeat < 2; ++repeat) {
    ASSERT_TRUE(trace.finish());
    EXPECT_EQ(trace.quality.zero_time, 1);
    EXPECT_EQ(trace.quality.inverted, 2);
    EXPECT_EQ(trace.quality.dropped, 4);
    EXPECT_EQ(trace.quality.unlinked, 2);
  }
}

TEST(TraceFinish, RefusesPhasesThatOverlapOrRunBackwards) {
  Trace overlap;
  overlap.phases = {{PhaseKind::kDecode, 3, 1, 0, 11}, {PhaseKind::kDecode, 4, 1, 10, 20}};
  const Status status = overlap.finish();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(status.error().message, "phase 4 starts before the phase in front of it ends");

  Trace backwards;
  backwards.phases = {{PhaseKind::kDecode, 2, 1, 10, 9}};
  ASSERT_FALSE(backwards.finish());

  Trace touching;
  touching.phases = {{PhaseKind::kDecode, 1, 1, 5, 9},
                     {PhaseKind::kDecode, 0, 1, 5, 5},
                     {PhaseKind::kDecode, 2, 1, 9, 9}};
  ASSERT_TRUE(touching.finish());
  EXPECT_EQ(touching.phases[0].index, 0);
}

}  // namespace
}  // namespace triptych
