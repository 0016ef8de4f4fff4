// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sums over the threads of a warp or block, in an order that does not depend on timing.
#pragma once

namespace triptych {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
inline constexpr int kMaxBlockThreads = 1024;

/// The sum over groups of `width` neighbouring lanes, a power of two; each lane gets it.
__device__ inline float warp_sum(float value, int width = kWarpSize) {
  for (int offset = width / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, offset);
  }
  return value;
}

/// Every thread gets the sum. blockDim.x is a multiple of kWarpSize. Called once in a kernel: a
/// second call could write `partial` while others still read it.
__device__ inline float block_sum_once(float value) {
  __shared__ float partial[kMaxBlockThreads / kWarpSize];
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarpSize;
  return warp_sum(lane < blockDim.x / kWarpSize ? partial[lane] : 0.0f);
}

}  // namespace triptych
