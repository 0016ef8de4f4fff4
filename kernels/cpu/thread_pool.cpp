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
#include "kernels/cpu/wait.h"

namespace triptych::cpu {
namespace {

constexpr size_t kCacheLine = 64;

// More chunks than threads: a thread that starts late, or loses its core to another process for a
// while, leaves its share to the others. Four bound what one such thread can hold up to a quarter
// of its share. The price is paid on idle cores: shorter streams of memory make the smallest
// products of a decode step a few microseconds slower than one range per thread would.
constexpr int64_t kChunksPerThread = 4;

// One line per worker, so that a worker spins on a line that only its own start invalidates, and a
// region that needs few workers leaves the others asleep.
struct alignas(kCacheLine) Signal {
  std::atomic<uint32_t> epoch{0};
};

}  // namespace

// A region is an epoch: the caller fills in the job, publishes the ticket (epoch, chunks left), and
// every thread claims chunks by taking one off. The job of an epoch stays as it is while a chunk of
// it is unfinished, so it is read after a claim only. Whether anything is left stands in the ticket
// itself: a late thread that compared an old ticket with the job being written could claim a chunk
// of a region that has not begun.
struct ThreadPool::State {
  explicit State(int num_threads) : signals(static_cast<size_t>(num_threads)) {}

  std::vector<Signal> signals;                          // [num_threads]; entry 0 is unused
  alignas(kCacheLine) std::atomic<uint64_t> ticket{0};  // epoch << 32 | chunks left
  alignas(kCacheLine) std::atomic<uint32_t> unfinished{0};
  // Written before the ticket is published, read after a claim.
  alignas(kCacheLine) const RangeBody* body = nullptr;
  int64_t count = 0;
  int64_t chunk_size = 1;
  uint32_t chunks = 0;
  std::atomic<bool> stop{false};
  bool spin = true;
  bool in_region = false;
  bool measure_wait = false;
  Wait wait;
  std::vector<std::thread> threads;

  void wake(uint32_t epoch, int workers) {
    for (int w = 1; w < workers; ++w) {
      signals[static_cast<size_t>(w)].epoch.store(epoch, std::memory_order_release);
      signals[static_cast<size_t>(w)].epoch.notify_one();
    }
  }

  void run_chunks(int worker) {
    uint32_t done = 0;  // reported once: each report takes a cache line from another core
    uint64_t claim = ticket.load(std::memory_order_acquire);
    while (const auto left = static_cast<uint32_t>(claim)) {
      if (!ticket.compare_exchange_weak(claim, claim - 1, std::memory_order_acq_rel)) continue;
      const int64_t begin = static_cast<int64_t>(chunks - left) * chunk_size;
      (*body)(begin, std::min(begin + chunk_size, count), worker);
      ++done;
      claim = ticket.load(std::memory_order_acquire);
    }
    if (done == 0) return;
    if (unfinished.fetch_sub(done, std::memory_order_acq_rel) == done) unfinished.notify_one();
  }

  void work(int worker) {
    const std::atomic<uint32_t>& epoch = signals[static_cast<size_t>(worker)].epoch;
    for (uint32_t seen = 0;;) {
      wait_while_equal(epoch, seen, spin);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      run_chunks(worker);
    }
  }

  void run_region(const RangeBody& region, int64_t total, int64_t size, int workers) {
    const auto number = static_cast<uint32_t>((total + size - 1) / size);
    const auto epoch = static_cast<uint32_t>(ticket.load(std::memory_order_relaxed) >> 32) + 1;
    body = &region;
    count = total;
    chunk_size = size;
    chunks = number;
    unfinished.store(number, std::memory_order_relaxed);
    ticket.store(static_cast<uint64_t>(epoch) << 32 | number, std::memory_order_release);
    wake(epoch, workers);
    run_chunks(0);
    if (measure_wait) wait.start_ns = now_ns();
    for (uint32_t left; (left = unfinished.load(std::memory_order_acquire)) != 0;) {
      wait_while_equal(unfinished, left, spin);
    }
    if (measure_wait) wait.end_ns = now_ns();
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
  const auto last = static_cast<uint32_t>(state_->ticket.load(std::memory_order_relaxed) >> 32);
  state_->wake(last + 1, num_threads());
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->signals.size()); }

void ThreadPool::parallel_for(int64_t count, int64_t grain, RangeBody body) {
  TRIPTYCH_CHECK(grain >= 1, "grain must be positive");
  State& s = *state_;
  s.wait = {};
  if (count <= 0) return;
  TRIPTYCH_CHECK(!s.in_region, "parallel_for called from inside a region");
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t wanted = std::min(num_threads() * kChunksPerThread, grains);
  const int64_t size = (grains + wanted - 1) / wanted * grain;
  const int workers = static_cast<int>(std::min<int64_t>(num_threads(), grains));
  s.in_region = true;
  if (workers == 1) {
    body(0, count, 0);
  } else {
    s.run_region(body, count, size, workers);
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
