// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Estimates of what a plan needs, before anything is loaded: memory, and a lower bound of time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/model_config.h"
#include "engine/weights.h"
#include "experiments/plan.h"
#include "experiments/spec.h"
#include "kernels/common/dtype.h"

namespace triptych {

struct WeightEstimate {
  int64_t total_bytes = 0;  ///< All matrices and norms.
  int64_t step_bytes = 0;   ///< What one decode step must read of them.
};

/// What an estimate needs to know of a checkpoint beside its shapes.
struct StoredModel {
  DType embed = DType::kF16;  ///< A quantized scheme keeps it when it is quantized.
  WeightEstimate bytes{};     ///< Under the scheme `stored`.
};
/// Reads no values. Errors: those of Checkpoint::dtype.
[[nodiscard]] Result<StoredModel> describe_stored(const Checkpoint& checkpoint);

/// Bytes of a model's weights under `scheme`, from shapes alone. Matrices that a checkpoint stores
/// in a finer type than the scheme's are counted as converted.
[[nodiscard]] WeightEstimate estimate_weights(const ModelConfig& config, const StoredModel& stored,
                                              WeightScheme scheme);

struct PlanEstimate {
  int64_t weight_bytes = 0;  ///< Each weight scheme of the plan once: stacks share them.
  int64_t kv_bytes = 0;      ///< All cells of the comparison with the most, at full length.
  int64_t moved_bytes = 0;   ///< Weights and KV that all passes must at least read.

  [[nodiscard]] int64_t memory_bytes() const { return weight_bytes + kv_bytes; }
};

/// Sums over all timed and warm-up passes; activations, quality checks and traced passes are not
/// counted, so that time = moved_bytes / bandwidth is a lower bound.
[[nodiscard]] PlanEstimate estimate_plan(const ExperimentSpec& spec, const ModelConfig& config,
                                         const StoredModel& stored);

/// MemAvailable of <root>/proc/meminfo, bytes; absent where the system does not say.
[[nodiscard]] std::optional<int64_t> available_memory_bytes(
    const std::filesystem::path& root = "/");

}  // namespace triptych
