// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Copies of 16 bytes from global into shared memory that a thread starts and waits for later
// (sm_80 and later). They pass the L1 cache by.
#pragma once

#include <cstdint>

namespace triptych {

/// Starts a copy; where `valid` is false, global memory is not read and 16 zero bytes are stored.
__device__ inline void copy_async_16(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

/// Stores 16 bytes at once: for what came by way of registers.
__device__ inline void store_16(uint32_t shared, uint4 value) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(shared), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

/// Closes a group of the copies that this thread has started since the last one.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kNewer of the newest groups are under way.
template <int kNewer>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewer) : "memory");
}
/// Waits for all copies, those outside a group too.
__device__ inline void wait_for_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace triptych
