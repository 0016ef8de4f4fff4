// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A run on a CUDA device: what the device cannot do is a row with the reason, the rest is measured.
#include <gmock/gmock.h>

#include "experiments/runner.h"
#include "tests/experiments/experiment_fixture.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

using test::count;

class RunCuda : public GpuTest {};

TEST_F(RunCuda, WhatTheDeviceCannotDoIsSkippedWithTheReason) {
  const test::ExperimentFolder folder;
  RunOptions options;
  options.database = folder / "results.sqlite";
  options.quiet = true;
  options.measure_ceilings = [](DeviceKind) { return cpu::Ceilings{1e12, 1e14}; };
  const auto outcome = run_experiment(folder.spec(R"(experiment: mixed
device: cuda
model: {synthetic: llama-tiny, seed: 1}
stacks:
  baseline: {runtime: eager, weights: f16}
  fast: {runtime: fast, weights: f16}
  four_bits: {runtime: fast, weights: w4a16-g32}
  no_room: {runtime: fast, weights: f16, memory_limit: 100000}
  wide_keys: {runtime: fast, weights: f16, kv: f32}
workload: {prompts: pool.jsonl, prompt_tokens: 4, output_tokens: 6, concurrency: 1}
measure: {blocks: 3, warmup: 1, trace_steps: 3, seed: 7}
)"),
                                      options);
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(outcome->end, RunEnd::kPartial);
  const auto rows = [&](const std::string& where) {
    return count(options.database, "SELECT count(*) FROM cell WHERE " + where);
  };
  EXPECT_EQ(rows("status = 'done' AND stack IN ('baseline', 'fast')"), 2);
  EXPECT_EQ(rows("status = 'skipped' AND stack = 'four_bits' AND reason LIKE"
                 " 'weights w4a16-g32 have a matrix of %, the CUDA kernels take f16 or bf16%'"),
            1);
  EXPECT_EQ(rows("status = 'skipped' AND stack = 'no_room' AND reason LIKE"
                 " '%exceed the limit of 97.7 KiB; % of the device_s % are free'"),
            1);
  EXPECT_EQ(rows("status = 'skipped' AND stack = 'wide_keys' AND reason LIKE '%16 bits%'"), 1);
  EXPECT_EQ(count(options.database,
                  "SELECT count(*) FROM run JOIN cell USING (run_id) WHERE"
                  " gpu_name <> '' AND device LIKE 'cuda: ' || gpu_name || '%'"),
            5);
}

}  // namespace
}  // namespace triptych
