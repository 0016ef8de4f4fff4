// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/units.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace triptych::cpu {
namespace {

// The serial stretches between two regions of a decode step (norm, RoPE, sampling) take 1 to 20 us
// and waking a sleeping thread 5 to 50 us, so a worker outlasts the former and no more.
constexpr int64_t kSpinNs = 50'000;
constexpr int kSpinsPerClockRead = 64;
constexpr size_t kCacheLine = 64;

void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once value != old: spins for kSpinNs at most, then sleeps in the kernel.
void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old, bool spin) {
  if (spin) {
    const int64_t deadline = now_ns() + kSpinNs;
    do {
      for (int i = 0; i < kSpinsPerClockRead; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        cpu_relax();
      }
    } while (now_ns() < deadline);
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

struct Job {
  const RangeBody* body = nullptr;
  int64_t count = 0;
  int64_t grain = 1;
  int workers = 1;
};

void run_range(const Job& job, int worker) {
  const int64_t chunks = (job.count + job.grain - 1) / job.grain;
  const int64_t begin = chunks * worker / job.workers * job.grain;
  const int64_t end = std::min(chunks * (worker + 1) / job.workers * job.grain, job.count);
  (*job.body)(begin, end, worker);
}

// One line per worker, so that a worker spins on a line that only its own start invalidates, and a
// region that needs few workers leaves the others asleep.
struct alignas(kCacheLine) Signal {
  std::atomic<uint32_t> epoch{0};
};

}  // namespace

struct ThreadPool::State {
  explicit State(int num_threads) : signals(static_cast<size_t>(num_threads)) {}

  std::vector<Signal> signals;  // [num_threads]; entry 0 is unused
  alignas(kCacheLine) std::atomic<uint32_t> pending{0};
  alignas(kCacheLine) Job job;  // written by the caller before the epochs, read after them
  bool stop = false;            // likewise
  bool spin = true;
  bool in_region = false;
  bool measure_wait = false;
  Wait wait;
  std::vector<std::thread> threads;

  void start(int workers) {
    for (int w = 1; w < workers; ++w) {
      std::atomic<uint32_t>& epoch = signals[static_cast<size_t>(w)].epoch;
      epoch.fetch_add(1, std::memory_order_release);
      epoch.notify_one();
    }
  }

  void work(int worker) {
    const std::atomic<uint32_t>& epoch = signals[static_cast<size_t>(worker)].epoch;
    for (uint32_t seen = 0;; ++seen) {
      wait_while_equal(epoch, seen, spin);
      if (stop) return;
      run_range(job, worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }

  void finish() {
    for (uint32_t left; (left = pending.load(std::memory_order_acquire)) != 0;) {
      wait_while_equal(pending, left, spin);
    }
  }
};

ThreadPool::ThreadPool(int num_threads) {
  TRIPTYCH_CHECK(num_threads >= 1, "a pool has at least the calling thread");
  state_ = std::make_unique<State>(num_threads);
  // With more threads than cores a spinning thread would hold the core another one needs.
  state_->spin = num_threads <= available_cores();
  state_->threads.reserve(static_cast<size_t>(num_threads - 1));
  for (int w = 1; w < num_threads; ++w) {
    state_->threads.emplace_back([state = state_.get(), w] { state->work(w); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->start(num_threads());
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->signals.size()); }

void ThreadPool::parallel_for(int64_t count, int64_t grain, RangeBody body) {
  TRIPTYCH_CHECK(grain >= 1, "grain must be positive");
  State& s = *state_;
  s.wait = {};
  if (count <= 0) return;
  TRIPTYCH_CHECK(!s.in_region, "parallel_for called from inside a region");
  const int64_t chunks = (count + grain - 1) / grain;
  const int workers = static_cast<int>(std::min<int64_t>(num_threads(), chunks));
  s.in_region = true;
  s.job = {.body = &body, .count = count, .grain = grain, .workers = workers};
  if (workers > 1) {
    s.pending.store(static_cast<uint32_t>(workers - 1), std::memory_order_relaxed);
    s.start(workers);
  }
  run_range(s.job, 0);
  if (workers > 1) {
    if (s.measure_wait) s.wait.start_ns = now_ns();
    s.finish();
    if (s.measure_wait) s.wait.end_ns = now_ns();
  }
  s.in_region = false;
}

void ThreadPool::set_measure_wait(bool on) { state_->measure_wait = on; }

ThreadPool::Wait ThreadPool::last_wait() const { return state_->wait; }

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace triptych::cpu
