// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/plan_estimate.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace triptych {
namespace {

/// Elements of the linear layers of all blocks.
int64_t linear_elements(const ModelConfig& c) {
  const int64_t attention = 2 * c.num_q_heads * c.head_dim + 2 * c.num_kv_heads * c.head_dim;
  return c.num_layers * (c.hidden_size * attention + 3 * c.hidden_size * c.intermediate_size);
}

DType linear_dtype(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::kF32:
      return DType::kF32;
    case WeightScheme::kF16:
      return DType::kF16;
    case WeightScheme::kW4A16G32:
      return DType::kQ4_1;
    case WeightScheme::kW4A16G64:
      return DType::kQ4_1_G64;
  }
  TRIPTYCH_CHECK(false, "unknown WeightScheme");
}

bool is_quantized(DType dtype) { return dtype_info(dtype).block_elements > 1; }

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

WeightEstimate estimate_weights(const ModelConfig& config, DType embed, WeightScheme scheme) {
  const DType linear = linear_dtype(scheme);
  const DType table = !is_quantized(linear) ? linear : is_quantized(embed) ? embed : DType::kF16;
  const int64_t table_bytes = config.vocab_size * row_bytes(table, config.hidden_size);
  const int64_t linear_bytes = row_bytes(linear, linear_elements(config));
  const int64_t vector_bytes = config.num_vector_parameters() * 4;
  const int64_t step = linear_bytes + vector_bytes + table_bytes;
  return {step + (config.tie_word_embeddings ? 0 : table_bytes), step};
}

PlanEstimate estimate_plan(const ExperimentSpec& spec, const ModelConfig& config, DType embed) {
  PlanEstimate estimate;
  std::set<WeightScheme> schemes;
  for (const StackSpec& stack : spec.stacks) {
    if (!schemes.insert(stack.weights).second) continue;
    estimate.weight_bytes += estimate_weights(config, embed, stack.weights).total_bytes;
  }
  const int64_t passes = spec.measure.blocks + spec.measure.warmup;
  for (const WorkloadSpec& workload : spec.workloads) {
    int64_t kv_bytes = 0;
    for (const StackSpec& stack : spec.stacks) {
      const int64_t per_token = config.kv_bytes_per_token(stack.kv == KvFormat::kF32 ? 4 : 2);
      const int64_t length = workload.prompt_tokens + workload.output_tokens;
      kv_bytes += workload.concurrency * length * per_token;
      // Every batch reads the weights once for its prompts and once per later token.
      const int64_t batches = divide_up(workload.requests, workload.concurrency);
      const int64_t steps = batches * workload.output_tokens;
      const int64_t weights = estimate_weights(config, embed, stack.weights).step_bytes * steps;
      const int64_t context = workload.prompt_tokens + workload.output_tokens / 2;
      const int64_t read = config.attended_tokens(context) * (per_token / config.num_layers);
      const int64_t kv = workload.requests * (workload.output_tokens - 1) * read;
      estimate.moved_bytes += passes * (weights + kv);
    }
    estimate.kv_bytes = std::max(estimate.kv_bytes, kv_bytes);
  }
  return estimate;
}

std::optional<int64_t> available_memory_bytes(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/meminfo");
  std::string key;
  int64_t kib = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    if (fields >> key >> kib && key == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

}  // namespace triptych
