// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// EngineOptions: what an engine is made for. Sizes that follow from them are computed here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/communicator.h"
#include "engine/runtime_features.h"
#include "engine/scheduler.h"
#include "kernels/sampling.h"

namespace triptych {

enum class KvFormat : uint8_t { kF16, kF32 };

/// Most prompt tokens in one step unless a stack says otherwise: enough for large products on the
/// device, few enough that decoding sequences do not wait long.
[[nodiscard]] constexpr int64_t default_prefill_chunk(DeviceKind device) {
  return device == DeviceKind::kCuda ? 2048 : 512;
}

struct EngineOptions {
  RuntimeFeatures features;
  DeviceKind device = DeviceKind::kCpu;
  KvFormat kv = KvFormat::kF16;
  int num_threads = 0;          ///< Of all ranks together; 0 = all cores this process may use.
  int64_t max_batch = 1;        ///< Most sequences that run together.
  int64_t max_sequence = 0;     ///< Most tokens of one sequence, prompt and output.
  int64_t page_size = 16;       ///< Tokens per KV page, with kPagedKv.
  int64_t prefill_chunk = 512;  ///< Most prompt tokens in one step, with kChunkedPrefill.
  /// The KV budget: most tokens of all sequences together, in whole pages; at least one sequence
  /// of max_sequence tokens. 0 = enough for max_batch of them.
  int64_t kv_cache_tokens = 0;
  /// Most device memory that the engine may take, bytes; 0 = all that the device has.
  int64_t memory_limit_bytes = 0;
  SamplingParams sampling = {};
  int tensor_parallel = 1;  ///< Ranks; each has at least one thread.
  AllReduceKind all_reduce = AllReduceKind::kAuto;

  [[nodiscard]] int64_t kv_page_size() const {
    return features.has(RuntimeFeature::kPagedKv) ? page_size : 1;
  }
  [[nodiscard]] int64_t kv_pages() const {
    const int64_t unit = kv_page_size();
    const int64_t all = max_batch * ((max_sequence + unit - 1) / unit);
    return kv_cache_tokens == 0 ? all : std::min(all, kv_cache_tokens / unit);
  }
  /// Rows of the largest step.
  [[nodiscard]] int64_t max_rows() const {
    if (!features.has(RuntimeFeature::kChunkedPrefill)) return std::max(max_batch, max_sequence);
    return max_batch + std::min(prefill_chunk, max_batch * max_sequence);
  }
  [[nodiscard]] SchedulerOptions scheduler() const {
    const bool paged = features.has(RuntimeFeature::kPagedKv);
    const bool continuous = features.has(RuntimeFeature::kContinuousBatching);
    return {.batch = continuous ? BatchPolicy::kContinuous : BatchPolicy::kStatic,
            .kv = paged ? KvPolicy::kOnDemand : KvPolicy::kReserve,
            .max_batch = max_batch,
            .page_size = kv_page_size(),
            .num_pages = kv_pages(),
            .prefill_chunk = features.has(RuntimeFeature::kChunkedPrefill) ? prefill_chunk : 0};
  }
};

}  // namespace triptych
