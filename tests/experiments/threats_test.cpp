// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/threats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/experiments/measurement_builder.h"

namespace triptych {
namespace {

using test::block;
using test::cell;

/// A comparison without fault; every test breaks one thing.
class ThreatsTest : public ::testing::Test {
 protected:
  ThreatsTest() {
    cells_ = {cell("baseline", 400), cell("full", 100)};
    spec_.name = "builtin";
    spec_.path = {"baseline", "full"};
    row_.decomposition = "builtin";
    row_.log_total = std::log(4.0);
    row_.log_total_lo = 1.3;
    row_.log_total_hi = 1.5;
  }

  /// Code -> severity.
  std::map<std::string, std::string> find() {
    std::map<std::string, std::string> found;
    for (const db::ThreatRow& row : comparison_threats({.run_id = 1,
                                    .label = "c=1",
                                    .cores = 2,
                                    .synthetic_tokens = synthetic_tokens_,
                                    .cells = cells_,
                                    .specs = {&spec_, 1},
                                    .decompositions = {&row_, 1}})) {
      EXPECT_EQ(row.run_id, 1);
      EXPECT_EQ(row.comparison, "c=1");
      EXPECT_FALSE(row.message.empty());
      found[row.code] = row.severity;
    }
    return found;
  }
  using Found = std::map<std::string, std::string>;

  std::vector<CellMeasurement> cells_;
  DecomposeSpec spec_;
  db::DecompositionRow row_;
  bool synthetic_tokens_ = false;
};

TEST_F(ThreatsTest, NoneInAHealthyComparison) { EXPECT_EQ(find(), Found{}); }

TEST_F(ThreatsTest, AnotherEngineHasNoTraceAndMaybeNoLogits) {
  cells_[0].stack.engine = "command";
  EXPECT_EQ(find(), (Found{{"trace_of_others", "note"}}));
  cells_[0].facts->max_logit_error.reset();
  cells_[0].facts->perplexity.reset();
  EXPECT_EQ(find(), (Found{{"trace_of_others", "note"}, {"outputs_by_tokens", "note"}}));
  cells_[1].facts->max_logit_error.reset();  // it is compared with tokens, and agrees
  EXPECT_EQ(find(), (Found{{"trace_of_others", "note"}, {"outputs_by_tokens", "note"}}));
  cells_[1].facts->token_agreement = 0.9;
  EXPECT_EQ(find(), (Found{{"trace_of_others", "note"},
                           {"outputs_by_tokens", "note"},
                           {"outputs_differ", "serious"}}));
}

TEST_F(ThreatsTest, AnotherEnginesTraceThatFailedIsNamedOnce) {
  cells_[0].stack.engine = "command";
  cells_[0].trace_error = "no profiler";
  EXPECT_EQ(find(), (Found{{"trace_failed", "warning"}}));
}

TEST_F(ThreatsTest, FewBlocks) {
  cells_[1].blocks.resize(7);
  EXPECT_EQ(find(), (Found{{"few_blocks", "warning"}}));
  cells_[1].blocks.resize(4);
  EXPECT_EQ(find(), (Found{{"few_blocks", "serious"}}));
}

TEST_F(ThreatsTest, OutliersAndDrift) {
  cells_[0].blocks[3] = block(3, 700, {700});
  cells_[0].blocks[3].cpu_mhz = 2000.0;
  EXPECT_EQ(find(), (Found{{"block_outliers", "warning"}}));
  cells_[0] = cell("baseline", 400);
  for (int64_t b = 5; b < 10; ++b) {
    cells_[0].blocks[static_cast<size_t>(b)] = block(b, 420, {420});
    cells_[0].blocks[static_cast<size_t>(b)].cpu_mhz = 2000.0;
  }
  EXPECT_EQ(find(), (Found{{"drift", "warning"}}));
}

TEST_F(ThreatsTest, FasterThanPossible) {
  cells_[0].facts->floor_ns_per_step = 399;
  EXPECT_EQ(find(), Found{});
  cells_[0].facts->floor_ns_per_step = 500;
  EXPECT_EQ(find(), (Found{{"below_floor", "warning"}}));
}

TEST_F(ThreatsTest, Intervals) {
  row_.log_total_hi = 2.1;
  EXPECT_EQ(find(), (Found{{"wide_interval", "warning"}}));
  row_.log_total_lo = -0.1;
  EXPECT_EQ(find(), (Found{{"wide_interval", "warning"}, {"share_refused", "serious"}}));
  row_.log_total_lo = -std::numeric_limits<double>::infinity();
  row_.log_total_hi = std::numeric_limits<double>::infinity();
  EXPECT_EQ(find(), (Found{{"share_refused", "serious"}})) << "no interval is not a wide one";
  row_.log_total_lo = 1.3;
  row_.log_total_hi = 1.5;
  row_.confounded = "two axes at once";
  EXPECT_EQ(find(), (Found{{"confounded", "warning"}}));
}

TEST_F(ThreatsTest, Outputs) {
  cells_[1].facts->token_agreement = 0.97;
  EXPECT_EQ(find(), (Found{{"outputs_differ", "warning"}}));
  cells_[1].facts->token_agreement = 0.9;
  EXPECT_EQ(find(), (Found{{"outputs_differ", "serious"}}));
  cells_[1].facts->token_agreement.reset();
  EXPECT_EQ(find(), (Found{{"outputs_not_compared", "serious"}}));
}

TEST_F(ThreatsTest, MissingCells) {
  spec_.corner = "corner";
  EXPECT_EQ(find(), (Found{{"corner_missing", "warning"}}));
  spec_.corner.reset();
  cells_[1].row.status = "skipped";
  cells_[1].blocks.clear();
  EXPECT_EQ(find(), (Found{{"cell_missing", "serious"}, {"decomposition_missing", "serious"}}));
}

TEST_F(ThreatsTest, LoadAndClock) {
  cells_[0].blocks[2].load_average = 2.4;  // the run itself is two threads
  EXPECT_EQ(find(), Found{});
  cells_[0].blocks[2].load_average = 2.6;
  EXPECT_EQ(find(), (Found{{"machine_load", "warning"}}));
  cells_[0].blocks[2].load_average = 0;
  for (db::BlockRow& row : cells_[0].blocks) row.cpu_mhz = 2030.0;
  EXPECT_EQ(find(), (Found{{"clock_drift", "warning"}}));
  for (db::BlockRow& row : cells_[0].blocks) row.cpu_mhz.reset();
  EXPECT_EQ(find(), (Found{{"clock_unreadable", "note"}}));
}

TEST_F(ThreatsTest, Trace) {
  cells_[0].facts->trace_dilation = 1.04;
  EXPECT_EQ(find(), Found{});
  cells_[0].facts->trace_dilation = 1.06;
  EXPECT_EQ(find(), (Found{{"trace_dilation", "warning"}}));
  cells_[0].facts->trace_dilation.reset();
  cells_[0].trace_error = "phases overlap";
  EXPECT_EQ(find(), (Found{{"trace_failed", "warning"}}));
  cells_[0].trace_error.clear();
  cells_[0].trace = db::TraceRow{};
  cells_[0].trace->window_ns = 1000;
  cells_[0].trace->token_times = {{0, "gemm", "compute", 980},
                                  {0, "unclassified", "unclassified", 20}};
  EXPECT_EQ(find(), (Found{{"unclassified_time", "warning"}}));
  cells_[0].trace->token_times.clear();
  cells_[0].trace->dropped = 1;
  EXPECT_EQ(find(), (Found{{"dropped_records", "serious"}}));
}

TEST_F(ThreatsTest, Harness) {
  cells_[1].row.concurrency_total = 8;
  EXPECT_EQ(find(), (Found{{"harness_differs", "serious"}}));
  cells_[1].row.concurrency_total = cells_[0].row.concurrency_total;
  synthetic_tokens_ = true;
  EXPECT_EQ(find(), (Found{{"synthetic_tokens", "note"}}));
}

TEST(RunThreats, SayWhatIsKnownAtTheStart) {
  RunConditions conditions{.run_id = 4,
                           .cores = 2,
                           .load_average = 2.0,
                           .model_origin = "gguf:x",
                           .fallback_reason = ""};
  EXPECT_TRUE(run_threats(conditions).empty());
  conditions.load_average = 2.5;
  conditions.model_origin = "synthetic:llama-tiny";
  conditions.fallback_reason = "model.gguf: no such file";
  const std::vector<db::ThreatRow> rows = run_threats(conditions);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].code, "model_fallback");
  EXPECT_NE(rows[0].message.find("no such file"), std::string::npos);
  EXPECT_EQ(rows[1].code, "synthetic_weights");
  EXPECT_EQ(rows[2].code, "machine_load");
  for (const db::ThreatRow& row : rows) EXPECT_TRUE(row.comparison.empty());
}

}  // namespace
}  // namespace triptych
