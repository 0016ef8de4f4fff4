// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes (sm_90 and later). A barrier's phase ends
// when all arrivals that it was made for have come and all bytes that they announced are there;
// phase i has parity i % 2. A barrier is named by its address in the shared window.
#pragma once

#include <cstdint>

namespace triptych {

__device__ inline void init_barrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// After init_barrier, in the thread that called it: other threads that synchronise with this one,
/// blocks of the cluster and bulk copies find the barrier ready.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void arrive_at_barrier(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives and announces bytes that bulk copies will bring.
__device__ inline void arrive_and_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Arrivals of a warp that comes together. racecheck knows of a barrier only that it orders the
/// threads that arrive themselves: TRIPTYCH_RACECHECK makes every lane one of them.
#ifdef TRIPTYCH_RACECHECK
inline constexpr uint32_t kWarpArrivals = 32;
#else
inline constexpr uint32_t kWarpArrivals = 1;
#endif
/// A warp arrives, all lanes together: what any of them stored before is visible to who waits.
/// `bytes` more will be brought by bulk copies.
__device__ inline void arrive_as_warp(uint32_t barrier, uint32_t bytes = 0) {
  __syncwarp();
  const bool first = threadIdx.x % 32 == 0;
  if (first && bytes > 0) {
    arrive_and_expect(barrier, bytes);
  } else if (first || kWarpArrivals > 1) {
    arrive_at_barrier(barrier);
  }
}
/// Arrives at a barrier of any block of the cluster, given by shared_address_of_rank.
__device__ inline void arrive_at_remote_barrier(uint32_t remote) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote)
               : "memory");
}

/// Returns when the phase of this parity has ended.
__device__ inline void wait_for_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// The same where other blocks of the cluster arrive: what they stored before is visible.
__device__ inline void wait_for_cluster_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace triptych
