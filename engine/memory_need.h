// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What an engine takes of a machine's memory, known from shapes before anything is loaded.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/weights.h"

namespace triptych {

/// An engine at its fullest, all ranks together. Bytes as double: the sizes behind them are a
/// user's, and their products may exceed 2^63.
struct MemoryNeed {
  double weight_bytes = 0;
  double kv_bytes = 0;
  double activation_bytes = 0;

  [[nodiscard]] double total() const { return weight_bytes + kv_bytes + activation_bytes; }
  /// "weights 15.0 GiB + KV cache 1.00 GiB + activations 80.0 MiB"
  [[nodiscard]] std::string to_string() const;
};

/// Of an engine with these shards (make_shards()); shapes without numbers (weight_shapes()) give
/// the same.
[[nodiscard]] MemoryNeed memory_need(std::span<const std::shared_ptr<const ModelWeights>> shards,
                                     const EngineOptions& options);

/// Installed memory of this machine.
[[nodiscard]] double machine_memory_bytes();

/// Most that an engine with these options may take: its limit, or what its device has.
[[nodiscard]] double memory_limit_bytes(const EngineOptions& options);

/// With paged_kv, a limit and no KV budget: the budget becomes what the limit leaves beside weights
/// and activations, at most what every slot needs. Otherwise the options as they are.
[[nodiscard]] EngineOptions fit_kv_budget(
    std::span<const std::shared_ptr<const ModelWeights>> shards, const EngineOptions& options);

/// Errors: kOutOfMemory with the arithmetic when `need` exceeds `limit_bytes`, so that a user reads
/// numbers and the kernel's out-of-memory killer has nothing to do. What is free on `device` is
/// told, but no limit: weights and pools that are there already are shared by the engines of a
/// process.
[[nodiscard]] Status check_memory(const MemoryNeed& need, double limit_bytes,
                                  DeviceKind device = DeviceKind::kCpu);

}  // namespace triptych
