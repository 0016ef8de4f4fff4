// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A run of the program triptych_lost_device and what every device must make of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/experiments/experiment_fixture.h"
#include "tests/experiments/lost_device.h"
#include "tests/support/child_process.h"

namespace triptych::test {

/// Two of the four stacks lose the device, one before anything is timed and one in a block: the run
/// goes on twice in a fresh process, and the other two are measured to their end.
inline void expect_the_other_cells_go_on(const std::string& device, std::string_view reason) {
  const ExperimentFolder folder;
  folder.write("spec.yaml",
               "experiment: lost\n"
               "device: " +
                   device +
                   "\n"
                   R"(model: {synthetic: llama-tiny, seed: 1}
stacks:
  baseline: {runtime: eager, weights: f16, threads: 1}
  in_pass: {runtime: fast, weights: f16, threads: 1, kv_cache_tokens: 4242}
  compared: {runtime: [paged_kv, arena], weights: f16, threads: 1, kv_cache_tokens: 4243}
  full: {runtime: fast, weights: f16, threads: 1}
workload: {prompts: pool.jsonl, prompt_tokens: 4, output_tokens: 6, concurrency: 1}
measure: {blocks: 5, warmup: 1, trace_steps: 3, seed: 7}
decompose:
  builtin: {path: [baseline, full]}
  lost: {path: [baseline, compared], confounded: the budget is what loses the device}
)");
  const std::filesystem::path database = folder / "results.sqlite";
  const ChildEnd end =
      run_program({"run", (folder / "spec.yaml").string(), "--db", database.string()},
                  {.program = program_beside("triptych_lost_device")});
  SCOPED_TRACE(end.err);
  EXPECT_EQ(end.code, 1) << "partial";
  size_t processes = 1;
  constexpr std::string_view kAgain = "run 1 goes on in a fresh one";
  for (size_t at = 0; (at = end.err.find(kAgain, at)) != std::string::npos; ++at) ++processes;
  EXPECT_EQ(processes, 3U);
  EXPECT_THAT(end.out, ::testing::HasSubstr("baseline")) << "the report of the last process";
  EXPECT_EQ(count(database, "SELECT count(*) FROM run WHERE status = 'partial'"), 1);
  EXPECT_EQ(count(database, "SELECT count(*) FROM run"), 1);
  EXPECT_EQ(count(database,
                  "SELECT count(*) FROM cell WHERE status = 'done' AND"
                  " stack IN ('baseline', 'full')"),
            2);
  EXPECT_EQ(count(database,
                  "SELECT count(*) FROM block JOIN cell USING (cell_id)"
                  " WHERE status = 'done'"),
            2 * 5);
  EXPECT_EQ(count(database,
                  "SELECT count(*) FROM cell WHERE status = 'failed' AND"
                  " stack IN ('in_pass', 'compared') AND reason LIKE '%" +
                      std::string(reason) + "%'"),
            2);
  EXPECT_EQ(count(database,
                  "SELECT count(*) FROM cell WHERE stack = 'compared' AND"
                  " reason LIKE 'comparing outputs: %'"),
            1);
  EXPECT_EQ(count(database,
                  "SELECT count(*) FROM block JOIN cell USING (cell_id)"
                  " WHERE stack = 'in_pass'"),
            1)
      << "blocks before the loss are kept, the open one is dropped";
  EXPECT_GT(count(database, "SELECT count(*) FROM decomposition"), 0);
}

}  // namespace triptych::test
