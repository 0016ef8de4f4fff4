// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// wait_while_equal(): how a thread of the CPU kernels waits for another one.
#pragma once

#include <atomic>
#include <cstdint>

namespace triptych::cpu {

/// Returns once value != old, with acquire ordering. Spins for a few microseconds, then yields,
/// then sleeps; without `spin` it sleeps at once, which is right when there are more threads than
/// cores: a spinning thread would hold the core another one needs. Who changes `value` must notify.
void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old, bool spin);

}  // namespace triptych::cpu
