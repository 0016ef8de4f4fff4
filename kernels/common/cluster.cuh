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
/// First half of a barrier that publishes nothing: it only says that the block runs.
__device__ inline void announce_to_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
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
__device__ inline void store_to_rank(uint32_t remote, float4 value) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(remote), "f"(value.x),
               "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
}
__device__ inline void store_to_rank(uint32_t remote, float2 value) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1,%2};" ::"r"(remote), "f"(value.x), "f"(value.y)
               : "memory");
}

}  // namespace triptych
