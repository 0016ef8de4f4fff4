// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sampling on a CUDA device; what is chosen is defined in kernels/sampling.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/sampling.h"

namespace triptych {

/// out[i] = the token chosen from row i; last_tokens[slots[i]] = the same, for rows whose slot is
/// not negative. Device memory. T is __half or __nv_bfloat16.
template <class T>
struct SampleArgs {
  const T* logits = nullptr;  ///< [rows, vocab_size]
  int64_t rows = 0;
  int64_t vocab_size = 0;
  SamplingParams params;
  const SampleKey* keys = nullptr;  ///< [rows]; unused when greedy.
  const int32_t* slots = nullptr;   ///< [rows]
  int32_t* last_tokens = nullptr;
  int32_t* out = nullptr;     ///< [rows]
  void* workspace = nullptr;  ///< sample_workspace_bytes(), zero at first and left zero.
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};
[[nodiscard]] int64_t sample_workspace_bytes(int64_t max_rows, int64_t vocab_size);
template <class T>
void launch_sample(const SampleArgs<T>& args, cudaStream_t stream);

}  // namespace triptych
