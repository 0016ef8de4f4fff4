// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// step_cost(): what one decode step must at least move and compute, from shapes alone.
#pragma once

#include <cstdint>

#include "engine/engine_options.h"
#include "engine/weights.h"
#include "kernels/cost.h"

namespace triptych {

/// Compulsory traffic and arithmetic of one decode step of `batch` sequences that have `context`
/// tokens each, of one rank. Reads shapes and types of `weights`, no values.
[[nodiscard]] KernelCost step_cost(const ModelWeights& weights, const EngineOptions& options,
                                   int64_t batch, int64_t context);

}  // namespace triptych
