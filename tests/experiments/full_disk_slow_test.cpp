// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A disk that fills up while results are written, played by a limit on the size of files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/cli.h"
#include "tests/experiments/experiment_fixture.h"
#include "tests/support/child_process.h"

namespace triptych {
namespace {

using test::count;
using ::testing::HasSubstr;

/// Two workload points, so that results of the first are whole when the second does not fit.
constexpr std::string_view kSpec = R"(experiment: full_disk
question: what is kept?
model: {synthetic: llama-tiny, seed: 1}
stacks:
  baseline: {runtime: eager, weights: f16, threads: 1}
  full: {runtime: fast, weights: f16, threads: 1}
workload: {prompts: pool.jsonl, prompt_tokens: 4, output_tokens: 16, concurrency: [1, 2]}
measure: {blocks: 20, warmup: 0, trace_steps: 16, seed: 7}
)";
constexpr int64_t kBlocks = 2 * 2 * 20;

/// 0 also where not even the tables are.
int64_t count_of_runs(const std::string& database) {
  const ChildEnd ended =
      run_program({"query", "SELECT count(*) AS n FROM run", "--db", database, "--format", "csv"});
  return ended.out == "n\r\n1\r\n" ? 1 : 0;
}

TEST(FullDisk, KeepsWhatIsWholeAndResumeAddsTheRest) {
  const test::ExperimentFolder folder;
  folder.write("spec.yaml", kSpec);
  const std::string spec = (folder / "spec.yaml").string();
  const std::string whole = (folder / "whole.sqlite").string();
  ASSERT_EQ(run_program({"run", spec, "--db", whole, "--quiet"}).code, kExitOk);
  const auto bytes = std::filesystem::file_size(whole);
  int64_t some_blocks = 0;
  for (const int tenths : {1, 5, 8}) {
    SCOPED_TRACE(tenths);
    const std::string database = (folder / (std::to_string(tenths) + ".sqlite")).string();
    const ChildEnd stopped =
        run_program({"run", spec, "--db", database, "--quiet"},
                    {.file_bytes = bytes * static_cast<unsigned>(tenths) / 10});
    EXPECT_EQ(stopped.code, kExitIo) << stopped.out << stopped.err;
    EXPECT_THAT(stopped.err, HasSubstr("triptych: error: " + database + ": "));
    EXPECT_THAT(stopped.err, HasSubstr("a limit on the size of files"));
    const bool stored = count_of_runs(database) == 1;
    EXPECT_EQ(stopped.err.find("run 1 keeps its finished blocks\ncontinue with: triptych resume "
                               "--run 1 --db " +
                               database + "\n") != std::string::npos,
              stored)
        << stopped.err;
    const ChildEnd blocks = run_program(
        {"query", "SELECT count(*) AS n FROM block", "--db", database, "--format", "csv"});
    const bool any = blocks.code == kExitOk && blocks.out != "n\r\n0\r\n";
    const bool all = blocks.out == "n\r\n" + std::to_string(kBlocks) + "\r\n";
    if (any && !all) ++some_blocks;
    ChildEnd continued = run_program({"resume", "--db", database, "--quiet"});
    if (continued.code == kExitDatabase) {  // the run itself was not stored
      EXPECT_FALSE(any);
      continued = run_program({"run", spec, "--db", database, "--quiet"});
    }
    EXPECT_EQ(continued.code, kExitOk) << continued.err;
    EXPECT_EQ(count(database, "SELECT count(*) FROM block"), kBlocks);
    EXPECT_EQ(count(database, "SELECT count(*) FROM run WHERE status = 'complete'"), 1);
    EXPECT_EQ(count(database, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    EXPECT_EQ(count(database, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
  }
  EXPECT_GT(some_blocks, 0) << "no limit fell between two blocks";
}

TEST(FullDisk, AnExportThatDoesNotFitSaysSo) {
  const test::ExperimentFolder folder;
  folder.write("spec.yaml", kSpec);
  const std::string database = (folder / "a.sqlite").string();
  ASSERT_EQ(run_program({"run", (folder / "spec.yaml").string(), "--db", database, "--quiet",
                         "--set", "measure.blocks=1", "--set", "measure.trace_steps=200", "--set",
                         "workload.output_tokens=100"})
                .code,
            kExitOk);
  const std::string file = (folder / "trace.json").string();
  const ChildEnd ended = run_program(
      {"export", "--db", database, "--cell", "full@c=1,prompt=4,output=100", "--output", file},
      {.file_bytes = 40960});  // room for what SQLite needs to read
  EXPECT_EQ(ended.code, kExitIo);
  EXPECT_EQ(ended.err, "triptych: error: " + file + ": cannot be written\n");
}

TEST(FullDisk, OutputThatCannotBeWrittenIsNoSuccess) {
  for (const char* command : {"--help", "--version", "doctor"}) {
    const ChildEnd ended = run_program({command}, {.out = "/dev/full"});
    EXPECT_EQ(ended.code, kExitIo) << command;
    EXPECT_THAT(ended.err, HasSubstr("triptych: error: the output cannot be written"));
  }
}

}  // namespace
}  // namespace triptych
