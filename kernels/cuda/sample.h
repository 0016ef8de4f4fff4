// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sampling on a CUDA device; what is chosen is defined in kernels/sampling.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cost.h"
#include "kernels/cuda/launch.h"
#include "kernels/sampling.h"

namespace triptych {

/// out[*out_at + i] = the token chosen from row i; last_tokens[slots[i]] = the same, for rows whose
/// slot is not negative. Device memory; out may be page-locked host memory. T is __half or
/// __nv_bfloat16.
template <class T>
struct SampleArgs {
  const T* logits = nullptr;  ///< [rows, vocab_size]
  int64_t rows = 0;
  int64_t vocab_size = 0;
  SamplingParams params;
  const SampleKey* keys = nullptr;  ///< [rows]; unused when greedy.
  const int32_t* slots = nullptr;   ///< [rows]; null: none.
  int32_t* last_tokens = nullptr;
  int32_t* out = nullptr;           ///< [*out_at + rows]
  const int32_t* out_at = nullptr;  ///< Null: 0.
  void* workspace = nullptr;        ///< sample_workspace_bytes(), zero at first and left zero.
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};
[[nodiscard]] int64_t sample_workspace_bytes(int64_t max_rows, int64_t vocab_size);
/// The same token as sample_token() of the same numbers, bit for bit, on every device and in every
/// batch. Requires at most 2^19 logits a row and 65535 rows. Throws DeviceError if the launch
/// fails.
template <class T>
void launch_sample(const SampleArgs<T>& args, cudaStream_t stream);

/// The logits once, as greedy sampling reads them; one comparison each.
[[nodiscard]] constexpr KernelCost sample_cost(int64_t rows, int64_t vocab_size,
                                               int64_t element_bytes) {
  return {.bytes_read = rows * vocab_size * element_bytes,
          .bytes_written = rows * 8,
          .flops = rows * vocab_size};
}

}  // namespace triptych
