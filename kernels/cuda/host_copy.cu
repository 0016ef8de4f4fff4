// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/host_copy.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_shape.h"

namespace triptych {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;           // loads in flight a thread: each is a way over the bus
constexpr int64_t kMostBlocks = 64;  // more do not make the bus faster

__global__ void __launch_bounds__(kThreads)
    copy_from_host_kernel(const uint4* from, uint4* to, int64_t vectors, int tail_words) {
  allow_next_kernel();
  wait_for_previous_kernels();
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < tail_words) {
    const auto* const words = reinterpret_cast<const uint32_t*>(from + vectors);
    reinterpret_cast<uint32_t*>(to + vectors)[threadIdx.x] = __ldcv(words + threadIdx.x);
  }
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x; first < vectors;
       first += stride * kUnroll) {
    uint4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride < vectors) values[u] = __ldcv(from + first + u * stride);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride < vectors) to[first + u * stride] = values[u];
    }
  }
}

}  // namespace

void launch_copy_from_host(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  constexpr int64_t kVector = sizeof(uint4);
  constexpr int64_t kWord = sizeof(uint32_t);
  TRIPTYCH_CHECK(bytes % kWord == 0 && reinterpret_cast<uintptr_t>(from) % kVector == 0 &&
                     reinterpret_cast<uintptr_t>(to) % kVector == 0,
                 "copy_from_host: not in words, or not aligned to 16 bytes");
  if (bytes == 0) return;
  const int64_t vectors = bytes / kVector;
  const auto blocks = static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(vectors, kThreads * kUnroll), 1, kMostBlocks));
  TRIPTYCH_CUDA_CHECK(launch_kernel(copy_from_host_kernel, dim3(blocks), dim3(kThreads), 0, stream,
                                    LaunchOrder::kAfterPrevious, 1, static_cast<const uint4*>(from),
                                    static_cast<uint4*>(to), vectors,
                                    static_cast<int>(bytes % kVector / kWord)));
}

}  // namespace triptych
