// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Two ranks from experiments/specs/tp_cpu.yaml to the views and the report, with the real engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attribution/time_class.h"
#include "experiments/report.h"
#include "experiments/runner.h"
#include "tests/experiments/experiment_fixture.h"

namespace triptych {
namespace {

using test::count;
using ::testing::HasSubstr;
using ::testing::Not;

class RankTimesTest : public ::testing::Test {
 protected:
  RankTimesTest() {
    options_.database = folder_ / "results.sqlite";
    options_.quiet = true;
    options_.measure_ceilings = [](DeviceKind) {
      return cpu::Ceilings{.read_bytes_per_s = 1e9, .f32_flops_per_s = 1e9};
    };
    const std::filesystem::path spec_path =
        std::filesystem::path(TRIPTYCH_SOURCE_DIR) / "experiments" / "specs" / "tp_cpu.yaml";
    const std::vector<SpecOverride> overrides = {
        {"measure.blocks", "2"}, {"measure.trace_steps", "6"}, {"workload.output_tokens", "10"}};
    const auto spec = parse_spec(spec_path, overrides);
    TRIPTYCH_CHECK(spec.has_value(), spec.error().to_string());
    const auto outcome = run_experiment(*spec, options_);
    TRIPTYCH_CHECK(outcome.has_value(), outcome.error().to_string());
    run_id_ = outcome->run_id;
  }
  int64_t rows(std::string_view sql) { return count(options_.database, sql); }
  ReportData report() {
    const auto store = db::Store::open(options_.database, db::OpenMode::kReadOnly);
    TRIPTYCH_CHECK(store.has_value(), store.error().to_string());
    auto data = load_report(*store, run_id_);
    TRIPTYCH_CHECK(data.has_value(), data.error().to_string());
    return std::move(*data);
  }

  test::ExperimentFolder folder_;
  RunOptions options_;
  int64_t run_id_ = 0;
};

TEST_F(RankTimesTest, ClassesOfEachDeviceSumToItsWindow) {
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'done'"), 3);
  EXPECT_EQ(rows("SELECT count(DISTINCT device_id) FROM v_token_time WHERE stack = 'two'"), 2);
  // Every device has the windows of all steps, which are those of rank 0.
  EXPECT_EQ(rows("WITH device AS (SELECT stack, device_id, sum(ns) AS ns, max(window_ns) AS window"
                 " FROM v_token_time GROUP BY stack, device_id),"
                 " devices AS (SELECT stack, count(*) AS n FROM device GROUP BY stack)"
                 " SELECT count(*) FROM device JOIN devices USING (stack)"
                 " WHERE device.ns * devices.n <> device.window"),
            0);
  const ReportData data = report();
  for (const ReportCell& cell : data.comparisons.at(0).cells) {
    ASSERT_TRUE(cell.token_time) << cell.row.stack;
    EXPECT_EQ(cell.token_time->residual_ns, 0);
    EXPECT_EQ(cell.ranks.size(), cell.row.stack == "one" ? 0U : 2U);
    for (const ReportRankTime& rank : cell.ranks) {
      EXPECT_EQ(rank.time.residual_ns, 0);
      EXPECT_EQ(rank.time.tokens, 6);
      EXPECT_GT(rank.time.window_ns, 0);
      EXPECT_EQ(rank.time.classes.size(), kNumTimeClasses);
    }
  }
}

TEST_F(RankTimesTest, RanksThatExchangeTransferWaitAndSynchronise) {
  for (const std::string name : {"comm_transfer", "comm_wait", "sync"}) {
    EXPECT_GT(
        rows("SELECT sum(ns) FROM v_token_time WHERE stack = 'two' AND class = '" + name + "'"), 0)
        << name;
  }
  // Each rank moves its own part, in every step.
  EXPECT_EQ(rows("SELECT count(*) FROM v_token_time WHERE stack = 'two'"
                 " AND class = 'comm_transfer' AND ns > 0"),
            2);
  EXPECT_EQ(rows("SELECT sum(ns) FROM v_token_time WHERE stack <> 'two' AND class LIKE 'comm_%'"),
            0);
}

TEST_F(RankTimesTest, ReportShowsEachRank) {
  const std::string text = render_report(report(), ReportFormat::kTerminal, {});
  EXPECT_THAT(text, HasSubstr("traced pass, mean over ranks)"));
  EXPECT_THAT(text, HasSubstr("Where it goes on each rank of two\n"));
  EXPECT_THAT(text, Not(HasSubstr("each rank of one")));
  const std::string csv = render_report(report(), ReportFormat::kCsv, {});
  EXPECT_THAT(csv, HasSubstr(",two,rank=1,comm_wait,"));
  EXPECT_THAT(render_report(report(), ReportFormat::kJson, {}), HasSubstr("\"rank\": 1"));
}

}  // namespace
}  // namespace triptych
