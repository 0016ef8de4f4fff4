// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// BlockGroup: one block, or a cluster of blocks that see each other's shared memory (sm_90), under
// one interface.
#pragma once

#include <cooperative_groups.h>

namespace triptych {

/// A group of kBlocks blocks; above 1 the kernel is launched with clusters of that size, on a
/// device that has them.
template <int kBlocks>
struct BlockGroup {
  /// Of this block in its group.
  static __device__ int rank() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) {
      return static_cast<int>(cooperative_groups::this_cluster().block_rank());
    }
#endif
    return 0;
  }

  /// All threads of all blocks; what they wrote before can be read after. A block whose shared
  /// memory others write may not end before their last barrier.
  static __device__ void barrier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) {
      cooperative_groups::this_cluster().sync();
      return;
    }
#endif
    __syncthreads();
  }

  /// `local`, an address in this block's shared memory, in that of block `rank`.
  template <class T>
  static __device__ T* in_block(T* local, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) {
      return cooperative_groups::this_cluster().map_shared_rank(local, rank);
    }
#endif
    (void)rank;
    return local;
  }
};

}  // namespace triptych
