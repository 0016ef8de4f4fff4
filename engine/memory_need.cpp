// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_need.h"

#include <unistd.h>

#include <algorithm>

#include "base/units.h"
#include "engine/device.h"
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

double memory_limit_bytes(const EngineOptions& options) {
  if (options.memory_limit_bytes > 0) return static_cast<double>(options.memory_limit_bytes);
  return device_memory_bytes(options.device);
}

EngineOptions fit_kv_budget(std::span<const std::shared_ptr<const ModelWeights>> shards,
                            const EngineOptions& options) {
  const bool paged = options.features.has(RuntimeFeature::kPagedKv);
  if (!paged || options.memory_limit_bytes == 0 || options.kv_cache_tokens > 0) return options;
  const MemoryNeed whole = memory_need(shards, options);
  EngineOptions one_page = options;
  one_page.kv_cache_tokens = options.page_size;
  const double page_bytes =
      memory_need(shards, one_page).kv_bytes / 2;  // a page and one to round up
  const double left =
      memory_limit_bytes(options) - whole.weight_bytes - whole.activation_bytes - page_bytes;
  EngineOptions fitted = options;
  if (whole.kv_bytes <= left) return fitted;
  // At least one sequence, so that what does not fit is refused with the whole arithmetic.
  const auto pages = static_cast<int64_t>(std::max(left, 0.0) / page_bytes);
  const int64_t one = (options.max_sequence + options.page_size - 1) / options.page_size;
  fitted.kv_cache_tokens = std::max(pages, one) * options.page_size;
  return fitted;
}

std::string MemoryNeed::to_string() const {
  return "weights " + format_bytes(weight_bytes) + " + KV cache " + format_bytes(kv_bytes) +
         " + activations " + format_bytes(activation_bytes);
}

Status check_memory(const MemoryNeed& need, double limit_bytes, DeviceKind device) {
  if (need.total() <= limit_bytes) return {};
  std::string text = need.to_string() + " exceed the limit of " + format_bytes(limit_bytes);
  if (const auto free = device_free_bytes(device)) {
    text += "; " + format_bytes(*free) + " of the device's " +
            format_bytes(device_memory_bytes(device)) + " are free";
  }
  return fail(ErrorCode::kOutOfMemory, text);
}

}  // namespace triptych
