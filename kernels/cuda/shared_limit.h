// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// SharedLimit: lets a kernel have more shared memory than the 48 KiB that every kernel may.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace triptych {

/// One for each kernel, static: the limit is an attribute of a kernel on a device, set once.
class SharedLimit {
 public:
  /// Of the current device; `large_clusters` also allows clusters of 16 blocks, which not every
  /// device has.
  cudaError_t raise(const void* kernel, int bytes, bool large_clusters = false) {
    int device = 0;
    if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
    const uint64_t bit = uint64_t{1} << (device % 64);
    if (device < 64 && (done_.load(std::memory_order_relaxed) & bit) != 0) return cudaSuccess;
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    // Kernels share an SM only if it is divided alike for both: the largest share for all, or a
    // block that would fit beside one of the kernel before waits until that one has left.
    if (status == cudaSuccess) {
      status = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared);
    }
    if (status == cudaSuccess && large_clusters) {
      status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    if (status == cudaSuccess) done_.fetch_or(bit, std::memory_order_relaxed);
    return status;
  }

 private:
  std::atomic<uint64_t> done_ = 0;
};

}  // namespace triptych
