// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/trace_rows.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "profiler/host_tracer.h"

namespace triptych {
namespace {

/// Prefill [0, 100), then decode steps of 100 ns with a product of 60 ns each and 10 ns between.
Trace small_trace(int64_t steps) {
  HostTracer tracer;
  tracer.begin_phase(PhaseKind::kPrefill, 0, 4, 0);
  tracer.record({.kind = ActivityKind::kKernel, .name = "gemm_f16", .start_ns = 0, .end_ns = 90});
  tracer.end_phase(100);
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t start = 110 * (k + 1);
    tracer.begin_phase(PhaseKind::kDecode, k, 1, start);
    tracer.record({.kind = ActivityKind::kKernel,
                   .name = "gemv_f16",
                   .start_ns = start,
                   .end_ns = start + 60,
                   .bytes = 5});
    tracer.record({.kind = ActivityKind::kKernel,
                   .name = "mystery",
                   .start_ns = start + 70,
                   .end_ns = start + 80});
    tracer.end_phase(start + 100);
  }
  auto trace = tracer.take();
  TRIPTYCH_CHECK(trace.has_value(), trace.error().to_string());
  return std::move(*trace);
}

TEST(TraceRows, DividesDecodeStepsOnly) {
  const auto row = make_trace_row(7, small_trace(3), Classifier::built_in());
  ASSERT_TRUE(row);
  EXPECT_EQ(row->cell_id, 7);
  EXPECT_EQ(row->steps, 3);
  EXPECT_EQ(row->tokens, 3);
  EXPECT_EQ(row->window_ns, 110 + 110 + 100);  // the last step ends with its phase
  EXPECT_EQ(row->unclassified, 3);
  EXPECT_EQ(row->phases.size(), 4U);
  EXPECT_EQ(row->phases.front().kind, "prefill");
  ASSERT_EQ(row->activities.size(), 7U);
  EXPECT_EQ(row->activities[1].name, "gemv_f16");
  EXPECT_EQ(row->activities[1].kind, "kernel");
  EXPECT_EQ(row->activities[1].bytes, 5);
  ASSERT_EQ(row->token_times.size(), kNumTimeClasses);
  std::map<std::string, int64_t> times;
  int64_t sum = 0;
  for (const db::TokenTimeRow& time : row->token_times) {
    times[time.time_class] = time.ns;
    sum += time.ns;
  }
  EXPECT_EQ(sum, row->window_ns);
  EXPECT_EQ(times["gemm"], 180);
  EXPECT_EQ(times["unclassified"], 30);
  EXPECT_EQ(times["launch_gap"], 90);
  EXPECT_EQ(times["host_wait"], 20);
}

TEST(TraceRows, TraceWithHolesIsKeptButNotDivided) {
  Trace trace = small_trace(2);
  trace.quality.dropped = 3;
  const auto row = make_trace_row(7, trace, Classifier::built_in());
  ASSERT_TRUE(row);
  EXPECT_EQ(row->dropped, 3);
  EXPECT_TRUE(row->token_times.empty());
  EXPECT_EQ(row->window_ns, 0);
  EXPECT_EQ(row->activities.size(), 5U);
}

TEST(TraceRows, EveryClassHasTheGroupOfTheGlossary) {
  std::map<std::string_view, int> sizes;
  for (size_t i = 0; i < kNumTimeClasses; ++i) ++sizes[time_group(static_cast<TimeClass>(i))];
  EXPECT_EQ(sizes, (std::map<std::string_view, int>{
                       {"compute", 6}, {"coordination", 5}, {"memcpy", 1}, {"unclassified", 1}}));
}

}  // namespace
}  // namespace triptych
