// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Order between a thread's own accesses to shared memory and those of the copy engine (sm_90 and
// later).
#pragma once

namespace triptych {

/// Bulk copies that are started after this come after the accesses before it.
__device__ inline void order_before_bulk_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace triptych
