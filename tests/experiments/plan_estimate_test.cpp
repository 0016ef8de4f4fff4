// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/plan_estimate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/checkpoint.h"

namespace triptych {
namespace {

/// The estimate from shapes is exactly what the loader makes of the same model.
TEST(PlanEstimate, WeightsAreThoseThatLoad) {
  for (const char* arch : {"llama-tiny", "qwen2-tiny", "qwen3-tiny"}) {
    const auto checkpoint = open_synthetic({.synthetic = arch});
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
    const auto stored = describe_stored(**checkpoint);
    ASSERT_TRUE(stored.has_value());
    for (const WeightScheme scheme :
         {WeightScheme::kF32, WeightScheme::kF16, WeightScheme::kW4A16G32, WeightScheme::kW4A16G64,
          WeightScheme::kStored}) {
      const auto weights = load_weights(*checkpoint, scheme);
      ASSERT_TRUE(weights.has_value()) << weights.error().to_string();
      const auto estimate = estimate_weights((*checkpoint)->config(), *stored, scheme);
      EXPECT_EQ(estimate.total_bytes, (*weights)->bytes()) << weight_scheme_name(scheme);
      EXPECT_EQ(estimate.step_bytes, (*weights)->bytes_per_decode_step())
          << weight_scheme_name(scheme);
    }
  }
}

TEST(PlanEstimate, CountsByHand) {
  ModelConfig config;
  config.hidden_size = 64;
  config.intermediate_size = 128;
  config.num_layers = 2;
  config.num_q_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 32;
  config.vocab_size = 100;
  config.tie_word_embeddings = true;
  // A layer: q and o 64 x 64, k and v 64 x 32, three of 64 x 128.
  const int64_t linear = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128);
  const int64_t norms = 5 * 64 * 4;
  const auto f16 = estimate_weights(config, {.embed = DType::kF16}, WeightScheme::kF16);
  EXPECT_EQ(f16.total_bytes, 2 * linear + 2 * 6400 + norms);
  EXPECT_EQ(f16.step_bytes, f16.total_bytes);
  const auto q4 = estimate_weights(config, {.embed = DType::kQ8_0}, WeightScheme::kW4A16G32);
  EXPECT_EQ(q4.total_bytes, linear / 32 * 20 + 6400 / 32 * 34 + norms);
  config.tie_word_embeddings = false;
  const auto untied = estimate_weights(config, {.embed = DType::kF16}, WeightScheme::kF16);
  EXPECT_EQ(untied.total_bytes - untied.step_bytes, 2 * 6400);

  ExperimentSpec spec;
  StackSpec stack;
  spec.stacks = {stack, stack};  // one scheme: weights are counted once, KV per cell
  spec.measure.blocks = 3;
  spec.measure.warmup = 1;
  WorkloadSpec workload;
  workload.prompt_tokens = 10;
  workload.output_tokens = 4;
  workload.concurrency = 2;
  workload.requests = 3;
  spec.workloads = {workload};
  const PlanEstimate estimate = estimate_plan(spec, config, {.embed = DType::kF16});
  const int64_t kv_per_token = 2 * 2 * 32 * 2;
  EXPECT_EQ(estimate.weight_bytes, untied.total_bytes);
  EXPECT_EQ(estimate.kv_bytes, 2 * 2 * 14 * kv_per_token);
  // 4 passes of 2 stacks: 2 batches of 4 steps read the weights; 3 requests of 3 later tokens read
  // a context of 12 on average.
  EXPECT_EQ(estimate.moved_bytes, 4 * 2 * (2 * 4 * untied.step_bytes + 3 * 3 * 12 * kv_per_token));
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
