// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/wait.h"

#include <thread>

#include "base/units.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace triptych::cpu {
namespace {

// A wait has three stages. Spinning: the serial stretches between two regions of a decode step
// (norm, RoPE) take 1 to 10 us, and waking a sleeping thread 5 to 50 us. Then yielding: on a busy
// machine the thread waited for may sit on this very core, where a spin only delays it (measured:
// 118 us a region without yielding, 13 us with it, 7 us on two cores); threads that yield also stay
// runnable, so the scheduler sees both of them and moves one. Last, sleeping, so that an idle
// engine uses no CPU.
constexpr int64_t kSpinNs = 10'000;
constexpr int64_t kYieldNs = 40'000;
constexpr int kSpinsPerClockRead = 64;  // about 1 us

void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old, bool spin) {
  if (spin) {
    int64_t now = now_ns();
    const int64_t yield_from = now + kSpinNs;
    do {
      for (int i = 0; i < kSpinsPerClockRead; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        cpu_relax();
      }
      now = now_ns();
      if (now > yield_from) std::this_thread::yield();
    } while (now < yield_from + kYieldNs);
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace triptych::cpu
