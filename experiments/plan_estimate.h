// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Estimates of what a plan needs, before anything is loaded: memory, and a lower bound of time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/memory_need.h"
#include "engine/weights.h"
#include "experiments/plan.h"
#include "experiments/spec.h"

namespace triptych {

/// The engine that a stack is at one workload point.
[[nodiscard]] EngineOptions engine_options(const StackSpec& stack, const WorkloadSpec& workload);

/// Most memory that a cell may take: its limit, or that of its device; `machine_bytes` are the
/// CPU's. Infinite for a device that is not here: a plan may be made on another machine.
[[nodiscard]] double cell_memory_bytes(const StackSpec& stack, const WorkloadSpec& workload,
                                       double machine_bytes);

/// One checkpoint's shapes in the formats that stacks ask for, each made once. Reads no values.
class ModelShapes {
 public:
  explicit ModelShapes(std::shared_ptr<const Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}

  [[nodiscard]] const ModelConfig& config() const { return checkpoint_->config(); }
  /// Errors: those of weight_shapes().
  [[nodiscard]] Result<std::shared_ptr<const ModelWeights>> weights(WeightScheme scheme);
  /// What make_engine() checks against the machine's memory. Errors: those of weights() and
  /// make_shards().
  [[nodiscard]] Result<MemoryNeed> need(const StackSpec& stack, const WorkloadSpec& workload);

 private:
  using Shards = std::vector<std::shared_ptr<const ModelWeights>>;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::map<std::pair<WeightScheme, int>, Shards> shards_;  ///< By scheme and number of ranks.
};

/// Could this cell run, as far as spec, shapes and the memory of the machine tell? A run skips what
/// is refused here before anything is loaded, so that plan and run agree. Of a CUDA device that is
/// not here only what holds for all of them is known. Errors: kOutOfMemory (memory,
/// positions of the model, KV budget), kUnsupported (formats, ranks, sampling of an external
/// engine).
[[nodiscard]] Status check_cell(ModelShapes& shapes, const StackSpec& stack,
                                const WorkloadSpec& workload, double machine_bytes);

/// A cell that check_cell() refuses.
struct RefusedCell {
  size_t stack = 0;  ///< Indices into the spec.
  size_t workload = 0;
  Error error;
};

/// Bytes as double: the sizes behind them are a user's, and their products may exceed 2^63.
struct PlanEstimate {
  double weight_bytes = 0;  ///< Each weight scheme of the plan once: stacks share them.
  /// All cells of the comparison with the most, at their fullest; on a CUDA device, where engines
  /// share it, the largest cell's.
  double kv_bytes = 0;
  double activation_bytes = 0;  ///< Likewise.
  double moved_bytes = 0;       ///< Weights and KV that all passes must at least read.
  std::vector<RefusedCell> refused;

  [[nodiscard]] double memory_bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
};

/// Sums over all timed and warm-up passes; activations, quality checks and traced passes do not
/// count as moved, so that time = moved_bytes / bandwidth is a lower bound. Stacks of other engines
/// and those that cannot be divided among their ranks count as nothing. Errors: those of
/// ModelShapes::weights().
[[nodiscard]] Result<PlanEstimate> estimate_plan(const ExperimentSpec& spec, ModelShapes& shapes,
                                                 double machine_bytes);

/// MemAvailable of <root>/proc/meminfo, bytes; absent where the system does not say.
[[nodiscard]] std::optional<int64_t> available_memory_bytes(
    const std::filesystem::path& root = "/");

}  // namespace triptych
