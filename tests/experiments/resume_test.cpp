// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A run that is killed without warning is completed by resume_run(), with nothing lost or doubled.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "base/random.h"
#include "base/units.h"
#include "tests/experiments/experiment_fixture.h"

namespace triptych {
namespace {

using test::count;

/// The real engine on two workload points of the tiny model; about a second of short passes.
constexpr std::string_view kSpec = R"(experiment: killed
question: is anything lost?
model: {synthetic: llama-tiny, seed: 1}
stacks:
  baseline: {runtime: eager, weights: f16, threads: 1}
  intermediate: {runtime: fast, weights: f16, threads: 1}
  full: {runtime: fast, weights: w4a16-g32, threads: 1}
  corner: {runtime: eager, weights: w4a16-g32, threads: 1}
workload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 12, concurrency: [1, 2]}
measure: {blocks: 12, warmup: 1, trace_steps: 4, seed: 7}
decompose:
  builtin: {path: [baseline, intermediate, full], corner: corner}
)";
constexpr int64_t kCells = 8;
constexpr int64_t kBlocks = 12;

class ResumeTest : public ::testing::Test {
 protected:
  RunOptions options(const std::filesystem::path& database) {
    RunOptions options;
    options.database = database;
    options.quiet = true;
    // The real measurement takes a second, in which most of the kills would fall.
    options.measure_ceilings = [](DeviceKind) { return cpu::Ceilings{1e10, 1e10}; };
    return options;
  }

  /// Starts `body` in a child process, so that its threads and locks die with it.
  template <class Body>
  pid_t start(Body body) {
    const pid_t child = fork();
    TRIPTYCH_CHECK(child >= 0, "fork");
    if (child == 0) _exit(body() ? 0 : 1);
    return child;
  }
  static int wait_for(pid_t child) {
    int status = 0;
    TRIPTYCH_CHECK(waitpid(child, &status, 0) == child, "waitpid");
    return status;
  }

  pid_t start_run(const std::filesystem::path& database) {
    return start([&] {
      const auto outcome = run_experiment(folder_.spec(kSpec), options(database));
      return outcome && outcome->end == RunEnd::kComplete;
    });
  }

  /// What a user does: resume; if the run was killed before it was stored, run again.
  pid_t start_resume(const std::filesystem::path& database) {
    return start([&] {
      auto outcome = resume_run(std::nullopt, options(database));
      if (!outcome && outcome.error().code == ErrorCode::kNotFound) {
        outcome = run_experiment(folder_.spec(kSpec), options(database));
        return outcome &&
               (outcome->end == RunEnd::kComplete || outcome->end == RunEnd::kNothingToRun);
      }
      if (!outcome) fprintf(stderr, "%s\n", outcome.error().to_string().c_str());
      return outcome && outcome->end == RunEnd::kComplete;
    });
  }

  void expect_whole(const std::filesystem::path& database) {
    EXPECT_EQ(count(database, "SELECT count(*) FROM run"), 1);
    EXPECT_EQ(count(database,
                    "SELECT count(*) FROM run WHERE status = 'complete' AND"
                    " finished_utc IS NOT NULL"),
              1);
    EXPECT_EQ(count(database, "SELECT count(*) FROM cell WHERE status = 'done'"), kCells);
    EXPECT_EQ(count(database, "SELECT count(*) FROM cell"), kCells);
    EXPECT_EQ(count(database, "SELECT count(*) FROM block"), kCells * kBlocks);
    EXPECT_EQ(count(database,
                    "SELECT count(*) FROM (SELECT DISTINCT cell_id, block_index FROM"
                    " block WHERE block_index BETWEEN 0 AND 11)"),
              kCells * kBlocks);
    EXPECT_EQ(count(database,
                    "SELECT count(*) FROM (SELECT block_id FROM block LEFT JOIN request"
                    " USING (block_id) GROUP BY block_id"
                    " HAVING count(request_index) NOT IN (1, 2))"),
              0);
    EXPECT_EQ(count(database, "SELECT count(*) FROM summary"), kCells * 6);
    EXPECT_EQ(count(database, "SELECT count(*) FROM cell_facts"), kCells);
    EXPECT_EQ(count(database, "SELECT count(*) FROM trace"), kCells);
    // Four methods for each of the two comparisons, and every method sums to ln F.
    EXPECT_EQ(count(database,
                    "SELECT count(*) FROM (SELECT DISTINCT comparison, method FROM"
                    " decomposition)"),
              8);
    EXPECT_EQ(count(database,
                    "SELECT count(*) FROM (SELECT sum(log_contribution) -"
                    " max(log_total) AS rest FROM decomposition GROUP BY comparison,"
                    " method) WHERE abs(rest) > 1e-12"),
              0);
    EXPECT_EQ(count(database, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
  }

  test::ExperimentFolder folder_;
};

TEST_F(ResumeTest, KilledAtTenMomentsIsCompletedEachTime) {
  const int64_t start_ns = now_ns();
  ASSERT_EQ(wait_for(start_run(folder_ / "whole.sqlite")), 0);
  const int64_t duration_ns = now_ns() - start_ns;
  expect_whole(folder_ / "whole.sqlite");

  int killed = 0;
  for (uint64_t moment = 0; moment < 10; ++moment) {
    const auto database = folder_ / ("killed_" + std::to_string(moment) + ".sqlite");
    // One random moment in each tenth of a whole run.
    const double share = (static_cast<double>(moment) + random_uniform(2026, moment)) / 10;
    const pid_t child = start_run(database);
    std::this_thread::sleep_for(
        std::chrono::nanoseconds(static_cast<int64_t>(share * static_cast<double>(duration_ns))));
    kill(child, SIGKILL);
    if (WIFSIGNALED(wait_for(child))) ++killed;
    ASSERT_EQ(wait_for(start_resume(database)), 0) << "killed after " << share << " of a run";
    expect_whole(database);
    if (HasFailure()) FAIL() << "killed after " << share << " of a run";
  }
  // A loaded machine may finish a run early; most kills must have hit all the same.
  EXPECT_GE(killed, 5);
}

TEST_F(ResumeTest, AnErrorInTheMiddleSaysHowToGoOn) {
  const auto database = folder_ / "memory.sqlite";
  RunOptions options = this->options(database);
  int engines = 0;
  options.make_engine = [&](auto weights, const EngineOptions& engine) {
    if (++engines > 4) throw std::bad_alloc();  // those of the second comparison
    return make_engine(std::move(weights), engine);
  };
  const auto outcome = run_experiment(folder_.spec(kSpec), options);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(outcome.error().message,
            "out of memory\nrun 1 keeps its finished blocks\ncontinue with: triptych resume "
            "--run 1 --db " +
                database.string());
  EXPECT_EQ(count(database, "SELECT count(*) FROM block"), kCells / 2 * kBlocks);
  EXPECT_EQ(count(database, "SELECT count(*) FROM v_runs WHERE status = 'interrupted'"), 1);
  const auto resumed = resume_run(1, this->options(database));
  ASSERT_TRUE(resumed) << resumed.error().to_string();
  EXPECT_EQ(resumed->end, RunEnd::kComplete);
  EXPECT_EQ(count(database, "SELECT count(*) FROM run WHERE interrupted"), 0);
  expect_whole(database);
}

}  // namespace
}  // namespace triptych
