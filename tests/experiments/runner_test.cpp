// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/plan_estimate.h"
#include "experiments/run_lock.h"
#include "experiments/run_rows.h"
#include "tests/experiments/experiment_fixture.h"
#include "tests/experiments/fake_engine.h"

namespace triptych {
namespace {

using test::count;
using test::FakeBehaviour;
using test::FakeEngine;

/// The fast runtime halves every time, 4-bit weights halve it again.
FakeBehaviour behaviour_of(const ModelWeights& weights, const EngineOptions& options) {
  FakeBehaviour behaviour;
  const bool fast = options.features != RuntimeFeatures::eager();
  const bool quantized = weights.scheme != WeightScheme::kF16;
  const int64_t divisor = (fast ? 2 : 1) * (quantized ? 2 : 1);
  behaviour.ttft_ns /= divisor;
  behaviour.tpot_ns /= divisor;
  behaviour.weight_bytes = quantized ? 300 : 1000;
  behaviour.logit_shift = quantized ? 0.5F : 0.0F;
  return behaviour;
}

class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() {
    options_.database = folder_ / "results.sqlite";
    options_.quiet = true;
    options_.make_engine = [this](std::shared_ptr<const ModelWeights> weights,
                                  const EngineOptions& options) { return make(*weights, options); };
    options_.measure_ceilings = [this](DeviceKind) {
      ++ceilings_;
      return cpu::Ceilings{.read_bytes_per_s = 1e9, .f32_flops_per_s = 1e9};
    };
  }

  Result<std::unique_ptr<Engine>> make(const ModelWeights& weights, const EngineOptions& options) {
    const bool quantized = weights.scheme != WeightScheme::kF16;
    if (quantized && refuse_quantized_) return fail(ErrorCode::kUnsupported, "no such kernel");
    if (quantized && lose_made_) return fail(ErrorCode::kDeviceLost, "no stream");
    FakeBehaviour behaviour = behaviour_of(weights, options);
    behaviour.before_generate = [this, quantized](bool traced) -> Status {
      ++passes_;
      if (passes_ == interrupt_at_) interrupted_ = true;
      if (quantized && !traced && passes_ > fail_quantized_after_) {
        return fail(ErrorCode::kIo, "the fake gave up");
      }
      if (passes_ >= lose_at_ || (traced && lose_traced_)) {
        return fail(ErrorCode::kDeviceLost, "the fake lost its device");
      }
      return {};
    };
    return std::unique_ptr<Engine>(std::make_unique<FakeEngine>(behaviour, options));
  }

  RunOutcome run(const ExperimentSpec& spec) {
    const auto outcome = run_experiment(spec, options_);
    TRIPTYCH_CHECK(outcome.has_value(), outcome.error().to_string());
    return *outcome;
  }
  int64_t rows(std::string_view sql) { return count(options_.database, sql); }

  test::ExperimentFolder folder_;
  RunOptions options_;
  bool refuse_quantized_ = false;
  int64_t fail_quantized_after_ = 1'000'000;
  int64_t interrupt_at_ = -1;
  int64_t lose_at_ = 1'000'000;  ///< Like a device, it stays lost.
  bool lose_traced_ = false;
  bool lose_made_ = false;
  int64_t passes_ = 0;
  int ceilings_ = 0;
  std::atomic<bool> interrupted_ = false;
};

TEST_F(RunnerTest, MeasuresEveryCellOfEveryBlockOnce) {
  const ExperimentSpec spec = folder_.spec();
  const RunOutcome outcome = run(spec);
  EXPECT_EQ(outcome.end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'done'"), 4);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 40);
  EXPECT_EQ(rows("SELECT count(*) FROM request"), 40);
  EXPECT_EQ(rows("SELECT count(*) FROM run WHERE status = 'complete'"), 1);
  EXPECT_EQ(rows("SELECT count(*) FROM trace"), 4);
  EXPECT_EQ(ceilings_, 1);
  // One pass to compare outputs, one warm-up and one trace of each cell, and the blocks.
  EXPECT_EQ(passes_, 1 + 4 + 40 + 4);

  const auto prepared = prepare_experiment(spec);
  ASSERT_TRUE(prepared);
  const auto store = db::Store::open(options_.database, db::OpenMode::kReadOnly);
  ASSERT_TRUE(store);
  const auto cells = store->cells(outcome.run_id);
  ASSERT_TRUE(cells);
  const Comparison& comparison = prepared->plan.comparisons.front();
  for (size_t i = 0; i < cells->size(); ++i) {
    const auto blocks = store->blocks((*cells)[i].cell_id);
    ASSERT_TRUE(blocks);
    for (const db::BlockRow& block : *blocks) {
      const auto& order = comparison.order[static_cast<size_t>(block.block_index)];
      EXPECT_EQ(order[static_cast<size_t>(block.order_index)], i);
    }
  }
}

TEST_F(RunnerTest, DividesTheSpeedupExactly) {
  const RunOutcome outcome = run(folder_.spec());
  const auto store = db::Store::open(options_.database, db::OpenMode::kReadOnly);
  ASSERT_TRUE(store);
  const auto rows = store->decompositions(outcome.run_id);
  ASSERT_TRUE(rows);
  std::map<std::string, double> sums;
  for (const db::DecompositionRow& row : *rows) {
    sums[row.method] += row.log_contribution;
    EXPECT_NEAR(row.log_total, std::log(4.0), 1e-12);
    // The fake's factors are powers of two and independent, whatever the method.
    const bool interaction = row.factor_name == "interaction";
    EXPECT_NEAR(row.log_contribution, interaction ? 0.0 : std::log(2.0), 1e-12) << row.method;
  }
  EXPECT_EQ(sums.size(), 4U);
  for (const auto& [method, sum] : sums) EXPECT_NEAR(sum, std::log(4.0), 1e-12) << method;
}

TEST_F(RunnerTest, KeepsFactsAndTimeClasses) {
  const RunOutcome outcome = run(folder_.spec());
  const auto store = db::Store::open(options_.database, db::OpenMode::kReadOnly);
  ASSERT_TRUE(store);
  const auto facts = store->facts(outcome.run_id);
  ASSERT_TRUE(facts);
  ASSERT_EQ(facts->size(), 4U);
  const db::CellFactsRow& base = facts->front();
  EXPECT_EQ(base.token_agreement, 1.0);
  EXPECT_EQ(base.max_logit_error, 0.0);
  EXPECT_EQ(base.peak_bytes, 1230);
  // 1000 bytes of weights and one sequence of 4 + 6/2 tokens at 1 GB/s.
  EXPECT_DOUBLE_EQ(base.floor_ns_per_step, 1007.0);
  EXPECT_EQ(base.trace_dilation, 1.0);
  EXPECT_DOUBLE_EQ((*facts)[2].max_logit_error.value(), 0.5);
  EXPECT_EQ(rows("SELECT count(*) FROM v_token_time WHERE class = 'gemm' AND"
                 " stack = 'baseline' AND ns = 9000 AND window_ns = 12000 AND tokens = 3"),
            1);
  EXPECT_EQ(rows("SELECT count(*) FROM (SELECT sum(ns) - max(window_ns) AS residual"
                 " FROM v_token_time GROUP BY cell) WHERE residual <> 0"),
            0);
}

TEST_F(RunnerTest, SecondRunMeasuresNothing) {
  const ExperimentSpec spec = folder_.spec();
  const RunOutcome first = run(spec);
  const int64_t passes = passes_;
  const RunOutcome second = run(spec);
  EXPECT_EQ(second.end, RunEnd::kNothingToRun);
  EXPECT_TRUE(second.all_measured);
  EXPECT_EQ(second.run_id, first.run_id);
  EXPECT_NE(second.message.find("nothing to run: 4 cells are complete (run 1, "), std::string::npos)
      << second.message;
  EXPECT_EQ(passes_, passes);
  EXPECT_EQ(rows("SELECT count(*) FROM run"), 1);

  const ExperimentSpec fewer = folder_.spec(test::kTinySpec, {{"measure.blocks", "8"}});
  EXPECT_EQ(run(fewer).end, RunEnd::kNothingToRun);
  options_.force = true;
  EXPECT_EQ(run(spec).end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM run"), 2);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 80);
}

TEST_F(RunnerTest, MoreBlocksOrAnotherDecompositionIsMeasured) {
  run(folder_.spec());
  EXPECT_EQ(run(folder_.spec(test::kTinySpec, {{"measure.blocks", "12"}})).end, RunEnd::kComplete);
  const std::string other = std::string(test::kTinySpec) +
                            "  pair: {path: [baseline, full],"
                            " confounded: both at once}\n";
  EXPECT_EQ(run(folder_.spec(other)).end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM v_decomposition WHERE decomposition = 'pair'"), 1);
}

TEST_F(RunnerTest, AnotherOrderIsMeasured) {
  const ExperimentSpec interleaved = folder_.spec();
  const ExperimentSpec sequential =
      folder_.spec(test::kTinySpec, {{"measure.order", "sequential"}});
  run(interleaved);
  EXPECT_EQ(run(sequential).end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM run"), 2);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 80);
  // Both are held now, each by its own run.
  EXPECT_EQ(run(interleaved).run_id, 1);
  EXPECT_EQ(run(sequential).run_id, 2);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 80);
}

TEST_F(RunnerTest, OnlyNewComparisonsAreMeasured) {
  run(folder_.spec());
  const RunOutcome outcome =
      run(folder_.spec(test::kTinySpec, {{"workload.concurrency", "[1, 2]"}}));
  EXPECT_EQ(outcome.end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE run_id = 2"), 4);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE run_id = 2 AND concurrency_total = 2"), 4);
}

TEST_F(RunnerTest, CellThatCannotRunIsARowWithAReason) {
  refuse_quantized_ = true;
  const ExperimentSpec spec = folder_.spec();
  EXPECT_EQ(run(spec).end, RunEnd::kPartial);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'done'"), 2);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'skipped' AND"
                 " reason = 'no such kernel'"),
            2);
  EXPECT_EQ(rows("SELECT count(*) FROM decomposition"), 0);
  EXPECT_EQ(rows("SELECT count(*) FROM threat WHERE code = 'decomposition_missing'"), 1);
}

TEST_F(RunnerTest, SecondRunSaysWhatTheFirstCouldNotMeasure) {
  refuse_quantized_ = true;
  EXPECT_FALSE(run(folder_.spec()).all_measured);
  const RunOutcome second = run(folder_.spec());
  EXPECT_EQ(second.end, RunEnd::kNothingToRun);
  EXPECT_FALSE(second.all_measured);
  EXPECT_NE(second.message.find("nothing to run: 2 of 4 cells complete, 2 failed or skipped: "
                                "no such kernel (run 1, "),
            std::string::npos)
      << second.message;
  EXPECT_EQ(rows("SELECT count(*) FROM run"), 1) << "not tried again";

  // Cells beside them that can be measured do not make the plan whole.
  refuse_quantized_ = false;
  const RunOutcome more = run(folder_.spec(test::kTinySpec, {{"workload.concurrency", "[1, 2]"}}));
  EXPECT_EQ(more.end, RunEnd::kComplete);
  EXPECT_FALSE(more.all_measured);
  EXPECT_EQ(more.message.find("2 of 4 cells complete, 2 failed or skipped"), 0U) << more.message;

  // Once a run has measured all of them, they are measured, whatever other runs say.
  options_.force = true;
  EXPECT_TRUE(run(folder_.spec()).all_measured);
  refuse_quantized_ = true;
  EXPECT_FALSE(run(folder_.spec()).all_measured);
  options_.force = false;
  EXPECT_TRUE(run(folder_.spec()).all_measured);
}

TEST_F(RunnerTest, CellThatDoesNotFitIsSkippedBeforeAnythingIsLoaded) {
  const ExperimentSpec spec = folder_.spec();
  ModelShapes shapes(prepare_experiment(spec)->checkpoint);
  const auto need = [&](size_t stack) {
    return shapes.need(spec.stacks[stack], spec.workloads[0]).value();
  };
  options_.memory_bytes = std::min(need(0).total(), need(1).total()) - 1;
  ASSERT_LE(std::max(need(2).total(), need(3).total()), options_.memory_bytes) << "4-bit weights";
  options_.make_engine = [](std::shared_ptr<const ModelWeights> weights,
                            const EngineOptions& options) -> Result<std::unique_ptr<Engine>> {
    TRIPTYCH_CHECK(weights->scheme != WeightScheme::kF16, "weights of a skipped cell were loaded");
    return std::unique_ptr<Engine>(
        std::make_unique<FakeEngine>(behaviour_of(*weights, options), options));
  };
  EXPECT_EQ(run(spec).end, RunEnd::kPartial);
  std::string reason = check_memory(need(0), options_.memory_bytes).error().message;
  std::replace(reason.begin(), reason.end(), '\'', '_');  // any character to LIKE
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE stack = 'baseline' AND status = 'skipped' AND"
                 " reason LIKE '" +
                 reason + "'"),
            1);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE stack IN ('full', 'corner') AND"
                 " status = 'done'"),
            2);
}

TEST_F(RunnerTest, CellThatFailsHalfWayLeavesTheOthers) {
  fail_quantized_after_ = 20;
  EXPECT_EQ(run(folder_.spec()).end, RunEnd::kPartial);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'failed' AND"
                 " reason = 'the fake gave up'"),
            2);
  EXPECT_EQ(rows("SELECT count(*) FROM block JOIN cell USING (cell_id) WHERE status = 'done'"), 20);
  EXPECT_LT(rows("SELECT count(*) FROM block JOIN cell USING (cell_id) WHERE status = 'failed'"),
            20);
}

TEST_F(RunnerTest, InterruptDropsTheOpenBlockAndResumeAddsIt) {
  options_.interrupted = &interrupted_;
  interrupt_at_ = 1 + 4 + 4 * 3 + 2;  // the second cell of the fourth block
  const ExperimentSpec spec = folder_.spec();
  const RunOutcome first = run(spec);
  EXPECT_EQ(first.end, RunEnd::kInterrupted);
  EXPECT_NE(first.message.find("triptych resume --run 1 --db "), std::string::npos)
      << first.message;
  EXPECT_EQ(passes_, interrupt_at_);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 12);
  EXPECT_EQ(rows("SELECT count(*) FROM run WHERE status = 'running'"), 1);

  interrupted_ = false;
  passes_ = 0;
  interrupt_at_ = -1;
  const auto resumed = resume_run(std::nullopt, options_);
  ASSERT_TRUE(resumed) << resumed.error().to_string();
  EXPECT_EQ(resumed->end, RunEnd::kComplete);
  EXPECT_EQ(passes_, 1 + 4 + 28 + 4);
  EXPECT_EQ(ceilings_, 1);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 40);
  EXPECT_EQ(rows("SELECT min(n) FROM (SELECT count(DISTINCT block_index) AS n FROM block"
                 " GROUP BY cell_id)"),
            10);
  EXPECT_EQ(resume_run(std::nullopt, options_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(resume_run(1, options_).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RunnerTest, AFallbackIsForAModelThatIsNotThere) {
  std::string yaml(test::kTinySpec);
  const std::string model = "model: {synthetic: llama-tiny, seed: 1}";
  const auto with_model = [&](const std::string& name) {
    const std::string both =
        "model: " + name + "\nmodel_fallback: {synthetic: llama-tiny, seed: 1}";
    return folder_.spec(std::string(yaml).replace(yaml.find(model), model.size(), both));
  };
  const auto absent = prepare_experiment(with_model("nothing"));
  ASSERT_TRUE(absent) << absent.error().to_string();
  EXPECT_TRUE(absent->inputs.model_is_fallback);
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_FALSE(prepare_experiment(with_model("empty"))) << "a directory without a model in it";
}

/// The working directory while it lives.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::filesystem::path& folder)
      : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;
  ~WorkingDirectory() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

TEST_F(RunnerTest, ARelativeSpecIsResumedFromAnyFolder) {
  options_.interrupted = &interrupted_;
  interrupt_at_ = 1 + 4 + 4 * 3 + 2;
  std::filesystem::create_directory(folder_ / "specs");
  std::filesystem::copy_file(folder_ / "pool.jsonl", folder_ / "specs/pool.jsonl");
  std::filesystem::remove(folder_ / "pool.jsonl");
  folder_.write("specs/tiny.yaml", test::kTinySpec);
  {
    const WorkingDirectory inside(folder_ / "");
    const auto spec = parse_spec("specs/tiny.yaml", {});
    ASSERT_TRUE(spec) << spec.error().to_string();
    EXPECT_EQ(run(*spec).end, RunEnd::kInterrupted);
  }
  EXPECT_EQ(rows("SELECT count(*) FROM run WHERE spec_path = 'specs/tiny.yaml'"), 1);

  interrupted_ = false;
  interrupt_at_ = -1;
  const WorkingDirectory elsewhere("/");
  std::filesystem::rename(folder_ / "specs", folder_ / "moved");
  const auto lost = resume_run(std::nullopt, options_);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kNotFound);
  EXPECT_NE(lost.error().message.find("started with the spec \"specs/tiny.yaml\""),
            std::string::npos)
      << lost.error().message;
  std::filesystem::rename(folder_ / "moved", folder_ / "specs");
  const auto resumed = resume_run(std::nullopt, options_);
  ASSERT_TRUE(resumed) << resumed.error().to_string();
  EXPECT_EQ(resumed->end, RunEnd::kComplete);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 40);
}

TEST_F(RunnerTest, ALostDeviceFailsOneCellAndResumeMeasuresTheOthers) {
  lose_at_ = 1 + 4 + 4 * 3 + 2;  // the second cell of the fourth block
  const ExperimentSpec spec = folder_.spec();
  const RunOutcome first = run(spec);
  EXPECT_EQ(first.end, RunEnd::kDeviceLost);
  EXPECT_EQ(first.message, "the device is lost to this process; run 1 goes on in a fresh one");
  EXPECT_EQ(passes_, lose_at_) << "nothing is asked of a lost device";
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 12);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'failed' AND"
                 " reason = 'the fake lost its device'"),
            1);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'planned'"), 3);

  lose_at_ = 1'000'000;
  passes_ = 0;
  const auto resumed = resume_run(first.run_id, options_);
  ASSERT_TRUE(resumed) << resumed.error().to_string();
  EXPECT_EQ(resumed->end, RunEnd::kPartial);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 3 + 30) << "the failed cell is not tried again";
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'done'"), 3);
  EXPECT_EQ(rows("SELECT count(*) FROM run WHERE status = 'partial'"), 1);
  EXPECT_EQ(run(spec).end, RunEnd::kNothingToRun);
}

TEST_F(RunnerTest, ADeviceThatIsLostAgainAndAgainCostsACellEachTime) {
  lose_at_ = 1;
  RunOutcome outcome = run(folder_.spec());
  int restarts = 0;
  for (; outcome.end == RunEnd::kDeviceLost; ++restarts) {
    ASSERT_LT(restarts, 5);
    outcome = resume_run(outcome.run_id, options_).value();
  }
  EXPECT_EQ(restarts, 4);
  EXPECT_EQ(outcome.end, RunEnd::kPartial);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'failed'"), 4);
  EXPECT_EQ(rows("SELECT count(*) FROM threat WHERE code = 'decomposition_missing'"), 1)
      << "the results of a comparison without any cell";
}

TEST_F(RunnerTest, TheDeviceMayBeLostWhereverItIsUsed) {
  lose_traced_ = true;
  EXPECT_EQ(run(folder_.spec()).end, RunEnd::kDeviceLost);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 40);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE stack = 'baseline' AND status = 'failed'"), 1);
  lose_traced_ = false;
  lose_made_ = true;
  EXPECT_EQ(resume_run(std::nullopt, options_)->end, RunEnd::kDeviceLost);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE stack = 'full' AND status = 'failed' AND"
                 " reason = 'no stream'"),
            1);
  EXPECT_EQ(rows("SELECT count(*) FROM cell WHERE status = 'planned'"), 2);
}

TEST_F(RunnerTest, RunContinuesAnUnfinishedRunOfTheSamePlan) {
  options_.interrupted = &interrupted_;
  interrupt_at_ = 12;
  run(folder_.spec());
  interrupted_ = false;
  const RunOutcome outcome = run(folder_.spec());
  EXPECT_EQ(outcome.end, RunEnd::kComplete);
  EXPECT_EQ(outcome.run_id, 1);
  EXPECT_EQ(rows("SELECT count(*) FROM run"), 1);
  EXPECT_EQ(rows("SELECT count(*) FROM block"), 40);
}

TEST_F(RunnerTest, ResumeRefusesOtherPrompts) {
  options_.interrupted = &interrupted_;
  interrupt_at_ = 12;
  run(folder_.spec());
  interrupted_ = false;
  folder_.write("pool.jsonl", "{\"token_ids\": [9, 9, 9, 9]}\n");
  const auto resumed = resume_run(1, options_);
  ASSERT_FALSE(resumed);
  EXPECT_EQ(resumed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(resumed.error().message.find("the prompts were changed"), std::string::npos);
  EXPECT_NE(resumed.error().message.find("triptych run "), std::string::npos);
}

TEST_F(RunnerTest, FallbackModelIsAThreat) {
  std::string yaml(test::kTinySpec);
  const std::string model = "model: {synthetic: llama-tiny, seed: 1}";
  yaml.replace(yaml.find(model), model.size(),
               "model: missing.gguf\nmodel_fallback: {synthetic: llama-tiny}");
  run(folder_.spec(yaml));
  EXPECT_EQ(rows("SELECT count(*) FROM threat WHERE code = 'model_fallback' AND comparison = ''"),
            1);
  EXPECT_EQ(rows("SELECT count(*) FROM threat WHERE code = 'synthetic_weights'"), 1);
}

TEST_F(RunnerTest, RanksThatCannotDivideTheHeadsWriteNothing) {
  std::string yaml(test::kTinySpec);
  const std::string stack = "full: {runtime: fast, weights: w4a16-g32";
  yaml.replace(yaml.find(stack), stack.size(), stack + ", parallel: {tp: 3}");
  yaml.erase(yaml.find("decompose:"));
  const auto outcome = run_experiment(folder_.spec(yaml), options_);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(outcome.error().message.find("stacks.full.parallel: tp is 3"), std::string::npos);
  EXPECT_NE(outcome.error().where.find("spec.yaml:7"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(options_.database));
}

TEST_F(RunnerTest, OneRunAtATimeWritesToADatabase) {
  run(folder_.spec());
  const auto lock = RunLock::acquire(options_.database);
  ASSERT_TRUE(lock);
  options_.force = true;
  const auto second = run_experiment(folder_.spec(), options_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_EQ(rows("SELECT count(*) FROM run"), 1);
}

TEST_F(RunnerTest, MissingModelWritesNothing) {
  std::string yaml(test::kTinySpec);
  const std::string model = "model: {synthetic: llama-tiny, seed: 1}";
  yaml.replace(yaml.find(model), model.size(), "model: gone.gguf");
  folder_.write("gone.gguf", "GGUF");
  const ExperimentSpec spec = folder_.spec(yaml);
  std::filesystem::remove(folder_ / "gone.gguf");  // after the spec was read
  const auto outcome = run_experiment(spec, options_);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(options_.database));
  EXPECT_EQ(resume_run(1, options_).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace triptych
