// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/plan_estimate.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "engine/model_tensors.h"

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
    case WeightScheme::kStored:
      break;  // no single type
  }
  TRIPTYCH_CHECK(false, "a WeightScheme of no single type");
}

bool is_quantized(DType dtype) { return dtype_info(dtype).block_elements > 1; }

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Result<StoredModel> describe_stored(const Checkpoint& checkpoint) {
  StoredModel stored;
  TRIPTYCH_TRY(stored.embed, checkpoint.dtype("embed"));
  const bool tied = checkpoint.config().tie_word_embeddings;
  const auto add = [&](const TensorSpec& spec) -> Status {
    DType dtype = DType::kF32;  // norms are always held as f32
    if (!spec.is_vector) {
      TRIPTYCH_TRY(dtype, checkpoint.dtype(spec.name));
    }
    const int64_t bytes = spec.rows * row_bytes(dtype, spec.columns);
    stored.bytes.total_bytes += bytes;
    if (spec.name != "embed" || tied) stored.bytes.step_bytes += bytes;
    return {};
  };
  TRIPTYCH_RETURN_IF_ERROR(for_each_tensor(checkpoint.config(), add));
  return stored;
}

WeightEstimate estimate_weights(const ModelConfig& config, const StoredModel& stored,
                                WeightScheme scheme) {
  if (scheme == WeightScheme::kStored) return stored.bytes;
  const DType linear = linear_dtype(scheme);
  const DType table = !is_quantized(linear)        ? linear
                      : is_quantized(stored.embed) ? stored.embed
                                                   : DType::kF16;
  const int64_t table_bytes = config.vocab_size * row_bytes(table, config.hidden_size);
  const int64_t linear_bytes = row_bytes(linear, linear_elements(config));
  const int64_t vector_bytes = config.num_vector_parameters() * 4;
  const int64_t step = linear_bytes + vector_bytes + table_bytes;
  return {step + (config.tie_word_embeddings ? 0 : table_bytes), step};
}

PlanEstimate estimate_plan(const ExperimentSpec& spec, const ModelConfig& config,
                           const StoredModel& stored) {
  PlanEstimate estimate;
  std::set<WeightScheme> schemes;
  for (const StackSpec& stack : spec.stacks) {
    if (!schemes.insert(stack.weights).second) continue;
    estimate.weight_bytes += estimate_weights(config, stored, stack.weights).total_bytes;
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
      const int64_t weights = estimate_weights(config, stored, stack.weights).step_bytes * steps;
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
