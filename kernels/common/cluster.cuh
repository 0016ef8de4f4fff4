// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Blocks of one cluster: a barrier in two halves and stores into each other's shared memory
// (sm_90 and later).
#pragma once

#include <cstdint>

namespace triptych {

/// First half of the barrier: what this thread stored is visible to those that have waited.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/// Second half: returns when all threads of the cluster have come to the first.
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// The address of another block's copy of a variable in shared memory.
__device__ inline uint32_t shared_address_of_rank(uint32_t shared, unsigned rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  return remote;
}
/// Stores into that block's shared memory. Its barrier, which has announced 16 bytes for this,
/// counts them: who waits for the barrier (wait_for_cluster_barrier) sees the value.
__device__ inline void send_to_rank(uint32_t remote, float4 value, uint32_t remote_barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, "
      "[%5];" ::"r"(remote),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(remote_barrier)
      : "memory");
}

}  // namespace triptych
