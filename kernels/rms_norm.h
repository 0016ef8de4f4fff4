// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Root-mean-square norm with an optional residual addition before it.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/cost.h"

#ifdef TRIPTYCH_HAS_CUDA
#include <cuda_runtime_api.h>

#include "kernels/cuda/launch.h"
#endif

namespace triptych {

/// If residual is null: y = x / sqrt(mean(x^2) + eps) * weight, per row.
/// Otherwise residual += x first and the norm is taken of the sum (pre-norm decoder blocks).
/// x, y, residual: [num_tokens, hidden_size] row-major; weight: [hidden_size]. y may alias x.
/// Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
template <class T>
struct RmsNormArgs {
  const T* x = nullptr;
  T* residual = nullptr;
  const T* weight = nullptr;
  T* y = nullptr;
  int64_t num_tokens = 0;
  int64_t hidden_size = 0;
  float eps = 0.0f;
};

/// Reads x, weight (and residual), writes y (and residual); about 4 flops an element.
template <class T>
[[nodiscard]] constexpr KernelCost rms_norm_cost(const RmsNormArgs<T>& args) {
  const auto elements = args.num_tokens * args.hidden_size;
  const int64_t streams = args.residual != nullptr ? 2 : 1;
  const auto size = static_cast<int64_t>(sizeof(T));
  return {.bytes_read = (elements * streams + args.hidden_size) * size,
          .bytes_written = elements * streams * size,
          .flops = elements * (3 + streams)};
}

#ifdef TRIPTYCH_HAS_CUDA
/// Whether launch_rms_norm can run these arguments; the error says which requirement fails.
/// T is __half or __nv_bfloat16.
template <class T>
[[nodiscard]] Status rms_norm_supports(const RmsNormArgs<T>& args);
/// Launches on `stream`; allocates nothing, never synchronises. Sums in f32, in an order that
/// depends on hidden_size only. Requires pointers aligned to 16 bytes and hidden_size % 8 == 0.
/// Throws DeviceError if the launch fails.
template <class T>
void launch_rms_norm(const RmsNormArgs<T>& args, cudaStream_t stream,
                     LaunchOrder order = LaunchOrder::kAfterPrevious);
#endif

}  // namespace triptych
