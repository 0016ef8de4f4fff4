// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_need.h"

#include <unistd.h>

#include "base/units.h"
#include "engine/model_runner.h"

namespace triptych {

MemoryNeed memory_need(std::span<const std::shared_ptr<const ModelWeights>> shards,
                       const EngineOptions& options) {
  MemoryNeed need;
  for (const auto& shard : shards) {
    const ModelRunner::Sizes sizes = ModelRunner::sizes(*shard, options);
    need.weight_bytes += static_cast<double>(shard->bytes());
    need.kv_bytes += sizes.kv_bytes;
    need.activation_bytes += sizes.activation_bytes;
  }
  return need;
}

double machine_memory_bytes() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

Status check_memory(const MemoryNeed& need, double machine_bytes) {
  if (need.total() <= machine_bytes) return {};
  return fail(ErrorCode::kOutOfMemory, "weights " + format_bytes(need.weight_bytes) +
                                           " + KV cache " + format_bytes(need.kv_bytes) +
                                           " + activations " + format_bytes(need.activation_bytes) +
                                           " exceed the machine's " + format_bytes(machine_bytes));
}

}  // namespace triptych
