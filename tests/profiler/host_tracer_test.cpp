// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/host_tracer.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

namespace triptych {
namespace {

TEST(HostTracer, TurnsPhasesAndOperationsIntoATrace) {
  HostTracer tracer(4);
  tracer.begin_phase(PhaseKind::kPrefill, 0, 12, 100);
  std::string name = "gemm_f16";
  tracer.record({ActivityKind::kKernel, name, 0, 105, 150, 4096});
  name = "reused";  // the name must outlive the call only
  tracer.record({ActivityKind::kRuntime, "alloc", 0, 101, 105, 0});
  tracer.end_phase(160);
  tracer.begin_phase(PhaseKind::kDecode, 0, 1, 165);
  tracer.record({ActivityKind::kMemcpy, "logits_to_host", 3, 170, 171, 64});
  tracer.end_phase(180);

  const Result<Trace> trace = tracer.take();
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->clock, "steady");
  EXPECT_EQ(trace->source, "host_tracer");
  ASSERT_EQ(trace->phases.size(), 2u);
  EXPECT_EQ(trace->phases[0].kind, PhaseKind::kPrefill);
  EXPECT_EQ(trace->phases[0].tokens, 12);
  EXPECT_EQ(trace->phases[0].start_ns, 100);
  EXPECT_EQ(trace->phases[0].end_ns, 160);
  EXPECT_EQ(trace->phases[1].kind, PhaseKind::kDecode);
  EXPECT_EQ(trace->phases[1].end_ns, 180);
  ASSERT_EQ(trace->activities.size(), 3u);
  EXPECT_EQ(trace->names[trace->activities[0].name_id], "alloc");  // ordered by start
  EXPECT_EQ(trace->activities[0].kind, ActivityKind::kRuntime);
  EXPECT_EQ(trace->names[trace->activities[1].name_id], "gemm_f16");
  EXPECT_EQ(trace->activities[1].bytes, 4096);
  EXPECT_EQ(trace->activities[1].device_id, 0);
  EXPECT_EQ(trace->activities[2].stream_id, 3);
  EXPECT_EQ(trace->activities[2].start_ns, 170);
  EXPECT_EQ(trace->activities[2].end_ns, 171);
}

TEST(HostTracer, IsEmptyAfterTake) {
  HostTracer tracer;
  tracer.begin_phase(PhaseKind::kDecode, 0, 1, 1);
  tracer.record({ActivityKind::kKernel, "add", 0, 1, 2, 0});
  tracer.end_phase(3);
  ASSERT_TRUE(tracer.take());
  const Result<Trace> second = tracer.take();
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->activities.empty());
  EXPECT_TRUE(second->phases.empty());
  EXPECT_EQ(second->names.size(), 0u);
}

TEST(HostTracer, TakesRoomForTheExpectedRecordsUpFront) {
  HostTracer tracer(1000);
  for (int i = 0; i < 1000; ++i) tracer.record({ActivityKind::kKernel, "add", 0, i, i + 1, 0});
  const Result<Trace> trace = tracer.take();
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->activities.size(), 1000u);
  EXPECT_EQ(trace->activities.capacity(), 1000u);  // grew, it would be a larger power of growth
  EXPECT_EQ(trace->names.size(), 1u);
}

TEST(HostTracer, TakesManyDevicesAtTheSameTime) {
  constexpr int64_t kRecords = 2000;
  HostTracer tracer(16);  // less than is recorded: growing must be safe too
  EXPECT_EQ(&tracer.device(0), &tracer);
  for (int round = 0; round < 2; ++round) {  // empty again after take()
    std::vector<std::thread> threads;
    for (int32_t id = 1; id < 4; ++id) {
      ActivitySink& sink = tracer.device(id);
      EXPECT_EQ(&tracer.device(id), &sink);
      threads.emplace_back([&sink, id] {
        const std::string own = "of_" + std::to_string(id);
        for (int64_t i = 0; i < kRecords; ++i) {
          sink.record({ActivityKind::kKernel, i % 2 == 0 ? "shared" : own, 0, i, i + 1, id});
        }
      });
    }
    tracer.begin_phase(PhaseKind::kDecode, round, 1, 0);
    for (int64_t i = 0; i < kRecords; ++i) {
      tracer.record({ActivityKind::kKernel, i % 2 == 0 ? "of_0" : "shared", 0, i, i + 1, 0});
    }
    tracer.end_phase(kRecords);
    for (std::thread& thread : threads) thread.join();

    const Result<Trace> trace = tracer.take();
    ASSERT_TRUE(trace);
    EXPECT_EQ(trace->phases.size(), 1u);
    EXPECT_EQ(trace->names.size(), 5u);
    std::map<int32_t, int64_t> records;
    for (const Activity& activity : trace->activities) {
      const bool shared = (activity.start_ns % 2 == 0) == (activity.device_id != 0);
      EXPECT_EQ(trace->names[activity.name_id],
                shared ? "shared" : "of_" + std::to_string(activity.device_id));
      EXPECT_EQ(activity.bytes, activity.device_id);
      ++records[activity.device_id];
    }
    EXPECT_EQ(records, (std::map<int32_t, int64_t>{
                           {0, kRecords}, {1, kRecords}, {2, kRecords}, {3, kRecords}}));
  }
}

TEST(HostTracer, SaysSoIfTheEngineReportsOverlappingPhases) {
  HostTracer tracer;
  tracer.begin_phase(PhaseKind::kDecode, 0, 1, 10);
  tracer.end_phase(30);
  tracer.begin_phase(PhaseKind::kDecode, 1, 1, 20);
  tracer.end_phase(40);
  const Result<Trace> trace = tracer.take();
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ErrorCode::kCorrupt);
}

TEST(HostTracerDeathTest, MisuseIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  HostTracer tracer;
  EXPECT_DEATH(tracer.end_phase(1), "no phase is open");
  tracer.begin_phase(PhaseKind::kDecode, 0, 1, 1);
  EXPECT_DEATH(tracer.begin_phase(PhaseKind::kDecode, 1, 1, 2), "phases do not nest");
  EXPECT_DEATH(static_cast<void>(tracer.take()), "still open");
  EXPECT_DEATH(tracer.device(1).begin_phase(PhaseKind::kDecode, 0, 1, 1), "device 0");
  EXPECT_DEATH(static_cast<void>(tracer.device(-1)), "numbered from 0");
}

}  // namespace
}  // namespace triptych
