// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/trace_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/engine.h"
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

// A real trace of two ranks: the classes of each sum to the window of its decode steps.
TEST(TraceRows, EveryRankOfATensorParallelEngineIsDividedWithoutRest) {
  for (const char* runtime : {"eager", "fast"}) {
    const auto checkpoint = open_checkpoint({.synthetic = "llama-tiny"});
    ASSERT_TRUE(checkpoint);
    const auto weights = load_weights(*checkpoint, WeightScheme::kF16);
    ASSERT_TRUE(weights);
    EngineOptions options;
    options.features = RuntimeFeatures::parse(runtime, DeviceKind::kCpu).value();
    options.num_threads = 2;
    options.max_sequence = 32;
    options.tensor_parallel = 2;
    const auto engine = make_engine(*weights, options);
    ASSERT_TRUE(engine) << engine.error().to_string();
    const std::vector<Request> requests = {{.prompt = {1, 2, 3, 4}, .max_new_tokens = 9}};
    HostTracer tracer;
    ASSERT_TRUE((*engine)->generate(requests, &tracer));
    const auto trace = tracer.take();
    ASSERT_TRUE(trace);
    const auto row = make_trace_row(1, *trace, Classifier::built_in());
    ASSERT_TRUE(row) << row.error().to_string();
    EXPECT_EQ(row->unclassified, 0);
    EXPECT_EQ(row->steps, 8 * 2) << "steps of both ranks";
    std::map<int32_t, std::map<std::string, int64_t>> times;
    std::map<int32_t, int64_t> sums;
    for (const db::TokenTimeRow& time : row->token_times) {
      times[time.device_id][time.time_class] = time.ns;
      sums[time.device_id] += time.ns;
    }
    ASSERT_EQ(sums.size(), 2U);
    EXPECT_EQ(sums[0], row->window_ns / 2);
    EXPECT_EQ(sums[1], row->window_ns / 2);
    for (const int32_t device : {0, 1}) {
      EXPECT_GT(times[device]["gemm"], 0);
      EXPECT_GT(times[device]["comm_transfer"], 0);
    }
    EXPECT_GT(times[0]["comm_wait"] + times[1]["comm_wait"], 0) << "somebody comes first";
    EXPECT_GT(times[0]["sync"] + times[1]["sync"], 0) << "and must be woken";
    EXPECT_EQ(times[1]["sampling"], 0);
  }
}

}  // namespace
}  // namespace triptych
