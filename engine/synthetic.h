// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The numbers of synthetic weights: a pure function of shape, seed and tensor name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/model_tensors.h"
#include "kernels/common/half.h"

namespace triptych {

/// Elements [first, first + out.size()) of the tensor, counted row by row, as the f16 numbers that
/// a synthetic checkpoint of this config and seed holds. Any split gives the same numbers, so a
/// tensor can be made by many threads and a file be written without holding it. Uses one thread.
void synthetic_values(const ModelConfig& config, uint64_t seed, const TensorSpec& spec,
                      int64_t first, std::span<Half> out);

/// A synthetic checkpoint of any valid config. `identity` names its shape in hash() and origin().
/// Errors: those of validate().
[[nodiscard]] Result<std::shared_ptr<const Checkpoint>> make_synthetic(ModelConfig config,
                                                                       std::string identity,
                                                                       uint64_t seed);

}  // namespace triptych
