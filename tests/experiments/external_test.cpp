// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// An external engine in a run: experiments/specs/external_cpu.yaml with a fake in place of
// Transformers, from the spec to the report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "experiments/report.h"
#include "experiments/runner.h"
#include "tests/experiments/experiment_fixture.h"
#include "tests/support/fake_command.h"

namespace triptych {
namespace {

using test::count;
using ::testing::HasSubstr;
using ::testing::Not;

/// Temporary files go to a folder of their own, which shows what is left of them.
class TemporaryFiles {
 public:
  explicit TemporaryFiles(const std::filesystem::path& folder) : folder_(folder) {
    std::filesystem::create_directory(folder);
    const char* before = std::getenv("TMPDIR");
    if (before != nullptr) before_ = before;
    ::setenv("TMPDIR", folder.c_str(), 1);
  }
  ~TemporaryFiles() { before_ ? ::setenv("TMPDIR", before_->c_str(), 1) : ::unsetenv("TMPDIR"); }
  [[nodiscard]] std::string left() const {
    std::string names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names += entry.path().filename().string() + " ";
    }
    return names;
  }

 private:
  std::filesystem::path folder_;
  std::optional<std::string> before_;
};

class ExternalTest : public ::testing::Test {
 protected:
  ExternalTest() {
    options_.database = folder_ / "results.sqlite";
    options_.cache = folder_ / "cache";
    options_.quiet = true;
    options_.measure_ceilings = [](DeviceKind) {
      return cpu::Ceilings{.read_bytes_per_s = 1e9, .f32_flops_per_s = 1e9};
    };
  }

  /// The spec on a smaller model, with a fake that behaves as `options` say.
  ExperimentSpec spec(const std::string& options) {
    const std::filesystem::path path =
        std::filesystem::path(TRIPTYCH_SOURCE_DIR) / "experiments" / "specs" / "external_cpu.yaml";
    const std::vector<SpecOverride> overrides = {
        {"model", "{synthetic: llama-tiny}"}, {"stacks.hf.adapter", test::kFakeEngineFile},
        {"stacks.hf.options", options},       {"workload.output_tokens", "4"},
        {"workload.concurrency", "[1, 2]"},   {"measure.blocks", "5"},
        {"measure.trace_steps", "2"}};
    auto parsed = parse_spec(path, overrides);
    TRIPTYCH_CHECK(parsed.has_value(), parsed.error().to_string());
    return std::move(*parsed);
  }

  RunOutcome run(const std::string& options) {
    const auto outcome = run_experiment(spec(options), options_);
    TRIPTYCH_CHECK(outcome.has_value(), outcome.error().to_string());
    return *outcome;
  }
  int64_t rows(std::string_view sql) { return count(options_.database, sql); }
  std::string report(int64_t run_id) {
    const auto store = db::Store::open(options_.database, db::OpenMode::kReadOnly);
    TRIPTYCH_CHECK(store.has_value(), store.error().to_string());
    const auto data = load_report(*store, run_id);
    TRIPTYCH_CHECK(data.has_value(), data.error().to_string());
    return render_report(*data, ReportFormat::kMarkdown, {});
  }
  std::vector<db::CellRow> cells(int64_t run_id) {
    const auto store = db::Store::open(options_.database, db::OpenMode::kReadOnly);
    return store.value().cells(run_id).value();
  }

  test::ExperimentFolder folder_;
  RunOptions options_;
};

TEST_F(ExternalTest, IsAStackLikeAnyOther) {
  const RunOutcome outcome = run("{can: [score]}");
  EXPECT_EQ(outcome.end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM block JOIN cell USING (cell_id) WHERE stack = 'hf'"), 10);
  EXPECT_EQ(rows("SELECT count(*) FROM trace JOIN cell USING (cell_id) WHERE stack = 'hf'"), 0);
  EXPECT_EQ(rows("SELECT count(*) FROM trace"), 4);
  EXPECT_EQ(rows("SELECT count(*) FROM cell_facts WHERE max_logit_error IS NULL"), 0);
  EXPECT_EQ(rows("SELECT count(*) FROM decomposition WHERE method = 'path' AND factor_name = "
                 "'engine' AND from_stack = 'hf'"),
            2);
  const std::string text = report(outcome.run_id);
  EXPECT_THAT(text, HasSubstr("fake 1 on cpu: linear=none; none 0"));
  EXPECT_THAT(text, HasSubstr("trace_of_others"));
  // The same experiment again: nothing to do.
  EXPECT_EQ(run("{can: [score]}").end, RunEnd::kNothingToRun);
  // Its options are part of what it is.
  EXPECT_EQ(run("{can: [score], tokens: 2}").end, RunEnd::kComplete);
}

TEST_F(ExternalTest, ItsTraceIsDividedLikeThatOfTheBuiltInStacks) {
  const TemporaryFiles temporary(folder_ / "tmp");
  const RunOutcome outcome = run("{can: [score, trace], step_ms: 4}");
  EXPECT_EQ(outcome.end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM trace JOIN cell USING (cell_id) WHERE stack = 'hf' AND "
                 "steps = 2 AND clock = 'steady' AND unlinked = 0"),
            2);
  EXPECT_EQ(rows("SELECT sum(ns) - min(window_ns) - max(window_ns) FROM v_token_time "
                 "WHERE stack = 'hf'"),
            0);
  // Half of each step is a product, a quarter a copy, the last quarter nothing.
  const auto percent = [&](const std::string& condition) {
    return rows("SELECT round(100.0 * sum(ns) FILTER (WHERE " + condition +
                ") / sum(ns)) FROM v_token_time WHERE stack = 'hf'");
  };
  EXPECT_NEAR(static_cast<double>(percent("class = 'gemm'")), 50, 2);
  EXPECT_NEAR(static_cast<double>(percent("class = 'memcpy'")), 25, 2);
  EXPECT_NEAR(static_cast<double>(percent("class IN ('launch_gap', 'host_wait')")), 25, 2);
  EXPECT_EQ(rows("SELECT count(*) FROM cell_facts JOIN cell USING (cell_id) "
                 "WHERE stack = 'hf' AND trace_dilation > 0.2"),
            2);
  // Prompts are in the trace, too.
  EXPECT_EQ(rows("SELECT sum(phase.tokens) FROM phase JOIN trace USING (trace_id) JOIN cell "
                 "USING (cell_id) WHERE stack = 'hf' AND kind = 'prefill'"),
            3 * rows("SELECT prompt_tokens FROM cell LIMIT 1"));
  EXPECT_THAT(report(outcome.run_id), Not(HasSubstr("trace_of_others")));
  EXPECT_TRUE(temporary.left().empty()) << temporary.left();
}

TEST_F(ExternalTest, ABadTraceIsAThreatAndNoFailure) {
  const TemporaryFiles temporary(folder_ / "tmp");
  for (const auto& [fault, reason] :
       {std::pair("error", "no profiler in this build"), std::pair("untold", "says neither"),
        std::pair("no_file", "it wrote no trace, although it says so"),
        std::pair("empty", "the engine's trace"),
        std::pair("truncated", "the engine's trace: not JSON at byte"),
        std::pair("huge", "the engine's trace: 1.0 GiB, expected at most 1"),
        std::pair("overlap", "starts before the phase in front of it ends"),
        std::pair("other_clock", "100 % of its device time lies outside of its phases"),
        std::pair("no_tokens", "decode step 0 says no number of tokens"),
        std::pair("no_device", "it has no record of a device"),
        std::pair("no_steps", "it has no decode step"),
        std::pair("more_steps", "it has 3 decode steps, the pass had 2"),
        std::pair("dies", "profiler: segmentation fault")}) {
    SCOPED_TRACE(fault);
    const RunOutcome outcome = run(std::string("{can: [score, trace], trace: ") + fault + "}");
    EXPECT_EQ(outcome.end, RunEnd::kComplete);
    for (const db::CellRow& cell : cells(outcome.run_id)) EXPECT_EQ(cell.status, "done");
    const std::string run_id = std::to_string(outcome.run_id);
    EXPECT_EQ(rows("SELECT count(*) FROM trace JOIN cell USING (cell_id) WHERE stack = 'hf' AND "
                   "run_id = " +
                   run_id),
              0);
    EXPECT_EQ(
        rows("SELECT count(*) FROM threat WHERE code = 'trace_failed' AND run_id = " + run_id), 2);
    EXPECT_THAT(report(outcome.run_id), HasSubstr(reason));
    EXPECT_TRUE(temporary.left().empty()) << temporary.left();
  }
}

TEST_F(ExternalTest, WithoutLogitsTokensAreCompared) {
  const RunOutcome outcome = run("{}");
  EXPECT_EQ(outcome.end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM cell_facts WHERE token_agreement IS NULL"), 0);
  EXPECT_EQ(rows("SELECT count(*) FROM cell_facts WHERE max_logit_error IS NOT NULL"), 0);
  const std::string text = report(outcome.run_id);
  EXPECT_THAT(text, HasSubstr("outputs_by_tokens"));
  EXPECT_THAT(text, HasSubstr("which gives no logits"));
}

TEST_F(ExternalTest, OneThatFailsIsARowAndTheOthersGoOn) {
  for (const auto& [options, status, reason] :
       {std::tuple("{behave: exit_at_open}", "failed", "exit code 3"),
        std::tuple("{behave: segfault}", "failed", "signal 11"),
        std::tuple("{behave: not_json}", "failed",
                   "line 5 of its output: not a JSON object: \"Loading weights"),
        std::tuple("{behave: late_failure}", "failed", "RuntimeError: it is late"),
        std::tuple("{behave: no_memory}", "skipped", "needs 2 GiB of 1 GiB"),
        std::tuple("{behave: no_such_option}", "skipped", "no mode fast")}) {
    SCOPED_TRACE(options);
    const RunOutcome outcome = run(options);
    EXPECT_EQ(outcome.end, RunEnd::kPartial);
    for (const db::CellRow& cell : cells(outcome.run_id)) {
      EXPECT_EQ(cell.status, cell.stack == "hf" ? status : "done") << cell.name;
      if (cell.stack == "hf") {
        EXPECT_THAT(cell.reason, HasSubstr(reason));
      }
    }
  }
}

TEST_F(ExternalTest, AnOpenLoopNeedsAnEngineForIt) {
  ExperimentSpec open = spec("{}");
  for (WorkloadSpec& workload : open.workloads) {
    workload.arrivals.kind = ArrivalSpec::Kind::kPoisson;
    workload.arrivals.rate_per_s = 1000;
  }
  const auto outcome = run_experiment(open, options_);
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  for (const db::CellRow& cell : cells(outcome->run_id)) {
    EXPECT_EQ(cell.status, cell.stack == "hf" ? "skipped" : "done") << cell.name;
  }
}

TEST_F(ExternalTest, SamplingIsNotDroppedInSilence) {
  ExperimentSpec sampled = spec("{can: [score]}");
  for (WorkloadSpec& workload : sampled.workloads) workload.sampling.temperature = 0.8F;
  const auto outcome = run_experiment(sampled, options_);
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(outcome->end, RunEnd::kPartial);
  for (const db::CellRow& cell : cells(outcome->run_id)) {
    EXPECT_EQ(cell.status, cell.stack == "hf" ? "skipped" : "done") << cell.name;
    if (cell.stack == "hf") {
      EXPECT_THAT(cell.reason, HasSubstr("external engines are greedy only"));
    }
  }
}

TEST_F(ExternalTest, AnInterruptIsNoFailureAndTheRunGoesOnLater) {
  std::atomic<bool> interrupted = false;
  options_.interrupted = &interrupted;
  std::jthread user([&] {
    while (!std::filesystem::exists(options_.database)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    interrupted = true;
  });
  // A step of 20 s: the run is in it when the user has had enough.
  const ExperimentSpec slow = spec("{can: [score], step_ms: 20000}");
  const auto outcome = run_experiment(slow, options_);
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(outcome->end, RunEnd::kInterrupted);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status <> 'planned'"), 0);
}

TEST_F(ExternalTest, AnInterruptedTraceLeavesNothingAndIsMadeLater) {
  const TemporaryFiles temporary(folder_ / "tmp");
  std::atomic<bool> interrupted = false;
  options_.interrupted = &interrupted;
  std::jthread user([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && temporary.left().find("triptych-trace") == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    interrupted = true;
  });
  EXPECT_EQ(run("{can: [score, trace], trace: endless}").end, RunEnd::kInterrupted);
  user.join();
  EXPECT_TRUE(temporary.left().empty()) << temporary.left();
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status <> 'planned'"), 0);
  EXPECT_EQ(rows("SELECT count(*) FROM block JOIN cell USING (cell_id) WHERE stack = 'hf'"), 5);

  // The blocks are there, so this process runs none of them before the trace.
  interrupted = false;
  ::setenv("FAKE_ENGINE_HURRY", "1", 1);
  EXPECT_EQ(run("{can: [score, trace], trace: endless}").end, RunEnd::kComplete);
  ::unsetenv("FAKE_ENGINE_HURRY");
  EXPECT_EQ(rows("SELECT count(*) FROM trace JOIN cell USING (cell_id) WHERE stack = 'hf'"), 2);
  EXPECT_EQ(rows("SELECT count(*) FROM block JOIN cell USING (cell_id) WHERE stack = 'hf'"), 10);
  EXPECT_EQ(rows("SELECT count(*) FROM cell_facts JOIN cell USING (cell_id) WHERE stack = 'hf' AND "
                 "peak_bytes = 3000"),
            2)
      << "a warm-up came before the trace, and told the memory";
}

TEST_F(ExternalTest, ThePlanKnowsItsProgram) {
  const std::string adapter = (folder_ / "adapter.py").string();
  folder_.write("adapter.py", "print(1)");
  ExperimentSpec own = spec("{}");
  own.stacks.front().command.adapter = adapter;
  const auto first = prepare_experiment(own);
  ASSERT_TRUE(first) << first.error().to_string();
  folder_.write("adapter.py", "print(2)");
  const auto second = prepare_experiment(own);
  ASSERT_TRUE(second);
  const auto& cells1 = first->plan.comparisons.front().cells;
  const auto& cells2 = second->plan.comparisons.front().cells;
  EXPECT_NE(cells1[0].hash, cells2[0].hash);
  EXPECT_EQ(cells1[1].hash, cells2[1].hash);  // the built-in stacks are what they were
}

}  // namespace
}  // namespace triptych
