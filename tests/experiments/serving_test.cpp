// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// An open loop from the spec to the views and the report, with the real engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/report.h"
#include "experiments/runner.h"
#include "tests/experiments/experiment_fixture.h"

namespace triptych {
namespace {

using test::count;
using testing::HasSubstr;

constexpr std::string_view kSpec = R"(experiment: serving
model: {synthetic: llama-tiny, seed: 1}
stacks:
  baseline: {runtime: eager, weights: f16, kv_cache_tokens: 40}
  full: {runtime: fast, weights: w4a16-g32, kv_cache_tokens: 40, prefill_chunk: 8}
workload:
  prompts: pool.jsonl
  prompt_tokens: 12
  output_tokens: 8
  concurrency: 4
  requests: 6
  arrivals: {poisson: 200}
  slo: {ttft_ms: 100000, tpot_ms: 0.001}
measure: {blocks: 3, warmup: 1, trace_steps: 4, seed: 5}
decompose:
  total: {path: [baseline, full], confounded: both axes change on purpose}
)";

class ServingTest : public ::testing::Test {
 protected:
  ServingTest() {
    options_.database = folder_ / "results.sqlite";
    options_.quiet = true;
    options_.measure_ceilings = [](DeviceKind) {
      return cpu::Ceilings{.read_bytes_per_s = 1e9, .f32_flops_per_s = 1e9};
    };
    const auto spec = parse_spec_text(kSpec, folder_ / "spec.yaml", {});
    TRIPTYCH_CHECK(spec.has_value(), spec.error().to_string());
    const auto outcome = run_experiment(*spec, options_);
    TRIPTYCH_CHECK(outcome.has_value(), outcome.error().to_string());
    run_id_ = outcome->run_id;
  }
  int64_t rows(std::string_view sql) { return count(options_.database, sql); }

  test::ExperimentFolder folder_;
  RunOptions options_;
  int64_t run_id_ = 0;
};

TEST_F(ServingTest, EveryPassSeesTheSameArrivalsAndTheViewsAddUp) {
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'done'"), 2);
  EXPECT_EQ(rows("SELECT count(*) FROM v_requests"), 2 * 3 * 6);
  EXPECT_EQ(rows("SELECT count(DISTINCT submit_ns) FROM request"), 6);
  EXPECT_EQ(rows("SELECT count(*) FROM request WHERE queue_ns < 0 OR queue_ns >= ttft_ns"), 0);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE arrivals = 'poisson:200'"), 2);
  // A promise that always holds and one that never does.
  EXPECT_EQ(rows("SELECT count(*) FROM v_serving WHERE slo_attainment = 0 AND goodput_per_s = 0"),
            2);
  EXPECT_EQ(rows("SELECT count(*) FROM v_latency WHERE metric = 'e2e' AND samples = 18"), 2);
  EXPECT_EQ(rows("SELECT count(*) FROM v_latency WHERE p50_ns > p90_ns OR p90_ns > p99_ns"), 0);
  EXPECT_EQ(rows("SELECT count(*) FROM summary WHERE metric = 'goodput_per_s'"), 2);
  EXPECT_EQ(rows("SELECT count(*) FROM decomposition WHERE metric = 'e2e_ns_per_token'"), 1);
}

TEST_F(ServingTest, TheReportShowsPromisesAndPercentiles) {
  const auto store = db::Store::open(options_.database, db::OpenMode::kReadOnly);
  ASSERT_TRUE(store);
  const auto data = load_report(*store, run_id_);
  ASSERT_TRUE(data) << data.error().to_string();
  const std::string text = render_report(*data, ReportFormat::kTerminal, {});
  EXPECT_THAT(text, HasSubstr("Serving (all requests, p50 / p99)"));
  EXPECT_THAT(text, HasSubstr("arrivals: poisson:200; goodput counts requests within TTFT"));
  EXPECT_THAT(text, HasSubstr("faster (latency per output token"));
  EXPECT_THAT(render_report(*data, ReportFormat::kMarkdown, {}),
              HasSubstr("KV of 40 tokens, chunks of 8"));
  EXPECT_THAT(render_report(*data, ReportFormat::kCsv, {}), HasSubstr("latency,"));
  EXPECT_THAT(render_report(*data, ReportFormat::kJson, {}), HasSubstr("\"goodput_per_s\": 0"));
}

}  // namespace
}  // namespace triptych
