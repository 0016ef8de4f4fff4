// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/plan_estimate.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "engine/command_engine.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "engine/shard.h"
#include "engine/weight_shapes.h"
#include "experiments/prompt_pool.h"

namespace triptych {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Bytes that one pass of a cell reads at least.
double moved_by_pass(const ModelWeights& weights, const StackSpec& stack,
                     const WorkloadSpec& workload) {
  const ModelConfig& config = weights.config;
  // Every batch reads the weights once for its prompts and once per later token.
  const auto steps = static_cast<double>(divide_up(workload.requests, workload.concurrency)) *
                     static_cast<double>(workload.output_tokens);
  const int64_t context = workload.prompt_tokens + workload.output_tokens / 2;
  const int64_t per_layer =
      kv_shape(config, engine_options(stack, workload)).token_bytes() / config.num_layers;
  const double read =
      static_cast<double>(config.attended_tokens(context)) * static_cast<double>(per_layer);
  return static_cast<double>(weights.bytes_per_decode_step()) * steps +
         static_cast<double>(workload.requests) * static_cast<double>(workload.output_tokens - 1) *
             read;
}

/// A share is one of the device here; without the device nothing is known of it.
int64_t limit_bytes(const StackSpec& stack) {
  if (stack.memory_limit > 1) return static_cast<int64_t>(stack.memory_limit);
  return static_cast<int64_t>(stack.memory_limit * device_memory_bytes(stack.device));
}

}  // namespace

EngineOptions engine_options(const StackSpec& stack, const WorkloadSpec& workload) {
  EngineOptions options;
  options.features = stack.runtime;
  options.device = stack.device;
  options.memory_limit_bytes = limit_bytes(stack);
  options.sampling = workload.sampling;
  options.kv = stack.kv;
  options.num_threads = stack.num_threads;
  options.kv_cache_tokens = stack.kv_cache_tokens;
  options.prefill_chunk = stack.prefill_chunk;
  options.tensor_parallel = stack.tensor_parallel;
  options.all_reduce = stack.all_reduce;
  options.max_batch = workload.concurrency;
  options.max_sequence = workload.prompt_tokens + workload.output_tokens;
  return options;
}

Result<std::shared_ptr<const ModelWeights>> ModelShapes::weights(WeightScheme scheme) {
  const auto found = shards_.find({scheme, 1});
  if (found != shards_.end()) return found->second.front();
  TRIPTYCH_TRY(auto whole, weight_shapes(checkpoint_, scheme));
  shards_[{scheme, 1}] = {whole};
  return whole;
}

Result<MemoryNeed> ModelShapes::need(const StackSpec& stack, const WorkloadSpec& workload) {
  TRIPTYCH_TRY(const auto whole, weights(stack.weights));
  const std::pair key{stack.weights, stack.tensor_parallel};
  auto found = shards_.find(key);
  if (found == shards_.end()) {
    TRIPTYCH_TRY(Shards shards, make_shards(whole, stack.tensor_parallel));
    found = shards_.emplace(key, std::move(shards)).first;
  }
  return memory_need(found->second, fit_kv_budget(found->second, engine_options(stack, workload)));
}

double cell_memory_bytes(const StackSpec& stack, const WorkloadSpec& workload,
                         double machine_bytes) {
  const EngineOptions options = engine_options(stack, workload);
  if (options.memory_limit_bytes > 0 || stack.device == DeviceKind::kCpu) {
    return options.memory_limit_bytes > 0 ? memory_limit_bytes(options) : machine_bytes;
  }
  const double device = device_memory_bytes(stack.device);
  return device > 0 ? device : std::numeric_limits<double>::infinity();
}

Status check_cell(ModelShapes& shapes, const StackSpec& stack, const WorkloadSpec& workload,
                  double machine_bytes) {
  TRIPTYCH_RETURN_IF_ERROR(check_lengths(shapes.config(), workload));
  if (!stack.builtin()) return check_command_sampling(workload.sampling);
  const EngineOptions options = engine_options(stack, workload);
  TRIPTYCH_RETURN_IF_ERROR(check_engine_options(shapes.config(), options));
  TRIPTYCH_TRY(const auto weights, shapes.weights(stack.weights));
  const bool cuda = stack.device == DeviceKind::kCuda;
  if (cuda) TRIPTYCH_RETURN_IF_ERROR(check_cuda_types(*weights));
  if (!cuda || device_memory_bytes(stack.device) > 0) {
    TRIPTYCH_RETURN_IF_ERROR(check_device(*weights, options));
  }
  TRIPTYCH_TRY(const MemoryNeed need, shapes.need(stack, workload));
  return check_memory(need, cell_memory_bytes(stack, workload, machine_bytes), stack.device);
}

Result<PlanEstimate> estimate_plan(const ExperimentSpec& spec, ModelShapes& shapes,
                                   double machine_bytes) {
  PlanEstimate estimate;
  std::set<WeightScheme> schemes;
  for (const StackSpec& stack : spec.stacks) {
    if (!stack.builtin() || !schemes.insert(stack.weights).second) continue;
    TRIPTYCH_TRY(const auto weights, shapes.weights(stack.weights));
    estimate.weight_bytes += static_cast<double>(weights->bytes());
  }
  const auto passes = static_cast<double>(spec.measure.blocks + spec.measure.warmup);
  for (size_t w = 0; w < spec.workloads.size(); ++w) {
    double kv_bytes = 0;
    double activation_bytes = 0;
    for (size_t s = 0; s < spec.stacks.size(); ++s) {
      const StackSpec& stack = spec.stacks[s];
      if (const Status runs = check_cell(shapes, stack, spec.workloads[w], machine_bytes); !runs) {
        estimate.refused.push_back({s, w, runs.error()});
      }
      if (!stack.builtin()) continue;  // another program, whose memory only it knows
      const auto need = shapes.need(stack, spec.workloads[w]);
      if (!need) continue;
      if (stack.device == DeviceKind::kCuda) {  // engines share what is not weights
        const bool more = need->kv_bytes + need->activation_bytes > kv_bytes + activation_bytes;
        if (more) kv_bytes = need->kv_bytes, activation_bytes = need->activation_bytes;
      } else {
        kv_bytes += need->kv_bytes;
        activation_bytes += need->activation_bytes;
      }
      TRIPTYCH_TRY(const auto weights, shapes.weights(stack.weights));
      estimate.moved_bytes += passes * moved_by_pass(*weights, stack, spec.workloads[w]);
    }
    if (kv_bytes + activation_bytes <= estimate.kv_bytes + estimate.activation_bytes) continue;
    estimate.kv_bytes = kv_bytes;
    estimate.activation_bytes = activation_bytes;
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
