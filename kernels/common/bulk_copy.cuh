// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Copies from global into shared memory by the copy engine (sm_90 and later): one thread starts
// them, a barrier (kernels/common/mbarrier.cuh) counts the bytes.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace triptych {

/// L2 gives up these lines first: for what is read once, such as weights in decode.
__device__ inline uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// `bytes` is a multiple of 16, both addresses are aligned to 16.
__device__ inline void copy_bulk(uint32_t shared, const void* global, uint32_t bytes,
                                 uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ inline void copy_bulk(uint32_t shared, const void* global, uint32_t bytes,
                                 uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

/// Into the shared memory of a block of the cluster; `remote` and `remote_barrier` as
/// shared_address_of_rank gives them. The thread's copies are read when wait_until_read returns.
__device__ inline void copy_bulk_to_rank(uint32_t remote, uint32_t shared, uint32_t bytes,
                                         uint32_t remote_barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(remote),
      "r"(shared), "r"(bytes), "r"(remote_barrier)
      : "memory");
}
__device__ inline void commit_bulk_copies() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void wait_until_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// The box of a three-dimensional map whose first element is (x, y, z), x innermost. What lies
/// outside the tensor arrives as zeros, and counts: the barrier gets the bytes of a whole box.
__device__ inline void copy_box(uint32_t shared, const CUtensorMap* map, int x, int y, int z,
                                uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2,%3,%4}], [%5], %6;" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ inline void copy_box(uint32_t shared, const CUtensorMap* map, int x, int y, int z,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2,%3,%4}], [%5];" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}
/// The same of a four-dimensional map.
__device__ inline void copy_box(uint32_t shared, const CUtensorMap* map, int x, int y, int z, int w,
                                uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2,%3,%4,%5}], [%6], %7;" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "l"(policy)
      : "memory");
}
/// Brings the map itself near, so that the first box does not wait for it.
__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace triptych
