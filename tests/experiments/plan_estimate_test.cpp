// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/plan_estimate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/checkpoint.h"
#include "engine/engine.h"
#include "engine/shard.h"

namespace triptych {
namespace {

constexpr double kEnough = 1e18;

StackSpec stack_of(const char* name, RuntimeFeatures runtime, WeightScheme weights) {
  StackSpec stack;
  stack.name = name;
  stack.runtime = runtime;
  stack.weights = weights;
  return stack;
}

WorkloadSpec small_workload() {
  WorkloadSpec workload;
  workload.prompt_tokens = 10;
  workload.output_tokens = 4;
  workload.concurrency = 2;
  workload.requests = 3;
  return workload;
}

std::shared_ptr<const Checkpoint> tiny() {
  const auto checkpoint = open_synthetic({.synthetic = "llama-tiny"});
  TRIPTYCH_CHECK(checkpoint.has_value(), checkpoint.error().to_string());
  return *checkpoint;
}

TEST(PlanEstimate, CountsByHand) {
  const auto checkpoint = tiny();
  const ModelConfig& config = checkpoint->config();
  ModelShapes shapes(checkpoint);
  const auto weights = shapes.weights(WeightScheme::kF16);
  ASSERT_TRUE(weights.has_value());

  ExperimentSpec spec;
  const StackSpec stack = stack_of("a", RuntimeFeatures(), WeightScheme::kF16);
  spec.stacks = {stack, stack};  // one scheme: weights are counted once, KV per cell
  spec.measure.blocks = 3;
  spec.measure.warmup = 1;
  spec.workloads = {small_workload()};
  const auto estimate = estimate_plan(spec, shapes, kEnough);
  ASSERT_TRUE(estimate.has_value());
  EXPECT_TRUE(estimate->refused.empty());
  EXPECT_EQ(estimate->weight_bytes, static_cast<double>((*weights)->bytes()));
  const auto kv_per_token = static_cast<double>(config.kv_bytes_per_token(2));
  // Two cells of two sequences of 14 tokens and one in which a sequence grows.
  EXPECT_EQ(estimate->kv_bytes, 2 * 2 * 15 * kv_per_token);
  EXPECT_GT(estimate->activation_bytes, 0);
  // 4 passes of 2 stacks: 2 batches of 4 steps read the weights; 3 requests of 3 later tokens read
  // a context of 12 on average.
  const auto step = static_cast<double>((*weights)->bytes_per_decode_step());
  EXPECT_EQ(estimate->moved_bytes, 4 * 2 * (2 * 4 * step + 3 * 3 * 12 * kv_per_token));
}

TEST(PlanEstimate, SizesBeyond64BitsStaySizes) {
  ModelShapes shapes(*open_synthetic({.synthetic = "llama-3.1-8b"}));
  ExperimentSpec spec;
  spec.stacks = {stack_of("a", RuntimeFeatures(), WeightScheme::kF16)};
  spec.measure.blocks = 100'000;
  WorkloadSpec workload;
  workload.prompt_tokens = 1 << 20;
  workload.output_tokens = 1 << 20;
  workload.concurrency = 1;
  workload.requests = 65536;
  spec.workloads = {workload};
  const auto estimate = estimate_plan(spec, shapes, kEnough);
  ASSERT_TRUE(estimate.has_value());
  EXPECT_GT(estimate->moved_bytes, 1e24);  // 1e5 passes x 7e10 steps x 1.6e10 bytes
}

/// One arithmetic: the estimate of a cell is what the loaded engine is checked against.
TEST(PlanEstimate, NeedIsThatOfTheLoadedEngine) {
  const auto checkpoint = tiny();
  ModelShapes shapes(checkpoint);
  for (const RuntimeFeatures runtime :
       {RuntimeFeatures(), RuntimeFeatures::fast(DeviceKind::kCpu)}) {
    for (const int ranks : {1, 2}) {
      StackSpec stack = stack_of("a", runtime, WeightScheme::kW4A16G32);
      stack.tensor_parallel = ranks;
      stack.kv_cache_tokens = 20;
      const auto weights = load_weights(checkpoint, stack.weights);
      ASSERT_TRUE(weights.has_value());
      const auto shards = make_shards(*weights, ranks);
      ASSERT_TRUE(shards.has_value());
      const EngineOptions options = engine_options(stack, small_workload());
      const MemoryNeed loaded = memory_need(*shards, options);
      const auto planned = shapes.need(stack, small_workload());
      ASSERT_TRUE(planned.has_value());
      EXPECT_EQ(planned->weight_bytes, loaded.weight_bytes);
      EXPECT_EQ(planned->kv_bytes, loaded.kv_bytes);
      EXPECT_EQ(planned->activation_bytes, loaded.activation_bytes);
      const auto engine = make_engine(*weights, options);
      ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
      EXPECT_LE(static_cast<double>((*engine)->memory().peak_bytes()), planned->total());
    }
  }
}

TEST(PlanEstimate, CellsThatDoNotFitAreNamedWithTheArithmetic) {
  ModelShapes shapes(tiny());
  ExperimentSpec spec;
  spec.stacks = {stack_of("large", RuntimeFeatures(), WeightScheme::kF32),
                 stack_of("small", RuntimeFeatures(), WeightScheme::kW4A16G32)};
  spec.workloads = {small_workload()};
  const auto large = shapes.need(spec.stacks[0], spec.workloads[0]);
  ASSERT_TRUE(large.has_value());
  const auto estimate = estimate_plan(spec, shapes, large->total() - 1);
  ASSERT_TRUE(estimate.has_value());
  ASSERT_EQ(estimate->refused.size(), 1U);
  EXPECT_EQ(estimate->refused[0].stack, 0U);
  EXPECT_EQ(estimate->refused[0].workload, 0U);
  EXPECT_EQ(estimate->refused[0].error.message,
            check_memory(*large, large->total() - 1).error().message);
}

/// Whatever the engine would refuse by options alone, a plan says as well, in the same words.
TEST(PlanEstimate, CellsThatNoMachineRunsAreRefused) {
  const auto checkpoint = tiny();
  ModelShapes shapes(checkpoint);
  ExperimentSpec spec;
  spec.stacks = {stack_of("f32", RuntimeFeatures(), WeightScheme::kF16),
                 stack_of("budget", RuntimeFeatures::fast(DeviceKind::kCpu), WeightScheme::kF16),
                 stack_of("external", RuntimeFeatures(), WeightScheme::kF16),
                 stack_of("plain", RuntimeFeatures(), WeightScheme::kF16)};
  spec.stacks[0].kv = KvFormat::kF32;
  spec.stacks[1].kv_cache_tokens = 13;  // of the 14 of a sequence
  spec.stacks[2].engine = "command";
  spec.workloads = {small_workload(), small_workload()};
  spec.workloads[0].sampling.temperature = 0.7F;
  spec.workloads[1].prompt_tokens = checkpoint->config().max_position - 3;
  const auto estimate = estimate_plan(spec, shapes, kEnough);
  ASSERT_TRUE(estimate.has_value());
  ASSERT_EQ(estimate->refused.size(), 3U + 4U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(estimate->refused[i].stack, i);
    const auto weights = load_weights(checkpoint, WeightScheme::kF16);
    ASSERT_TRUE(weights.has_value());
    const auto engine = make_engine(*weights, engine_options(spec.stacks[i], spec.workloads[0]));
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(estimate->refused[i].error.message, engine.error().message);
  }
  EXPECT_EQ(estimate->refused[2].error.message,
            "external engines are greedy only, the workload's sampling is " +
                to_string(spec.workloads[0].sampling));
  for (size_t i = 3; i < 7; ++i) {
    EXPECT_EQ(estimate->refused[i].workload, 1U);
    EXPECT_EQ(estimate->refused[i].error.code, ErrorCode::kOutOfMemory);
    EXPECT_NE(estimate->refused[i].error.message.find("has positions for"), std::string::npos);
  }
}

TEST(PlanEstimate, AvailableMemoryIsReadFromProc) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("triptych_meminfo_" + std::to_string(getpid()));
  EXPECT_FALSE(available_memory_bytes(root).has_value());
  std::filesystem::create_directories(root / "proc");
  std::ofstream(root / "proc/meminfo") << "MemTotal:  100 kB\nMemAvailable:   42 kB\n";
  EXPECT_EQ(available_memory_bytes(root), 42 * 1024);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace triptych
