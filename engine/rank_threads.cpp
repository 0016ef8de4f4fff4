// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_threads.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/shard.h"
#include "kernels/cpu/wait.h"

namespace triptych {

namespace {

constexpr size_t kCacheLine = 64;

}  // namespace

struct RankThreads::State {
  State(int num_ranks, int num_threads)
      : spin(std::max(num_ranks, num_threads) <= cpu::available_cores()) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      const int64_t share = shard_range(num_threads, 1, num_ranks, rank).count;
      pools.emplace_back(static_cast<int>(std::max<int64_t>(share, 1)));
    }
  }

  void drive(int rank) {
    for (uint32_t seen = 0;;) {
      cpu::wait_while_equal(epoch, seen, spin);
      seen = epoch.load(std::memory_order_acquire);
      if (stop) return;
      (*body)(rank);
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
    }
  }

  void next_epoch() {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void stop_all() {
    stop = true;
    next_epoch();
    for (std::thread& thread : threads) thread.join();
  }

  const bool spin;
  std::deque<cpu::ThreadPool> pools;  // [num_ranks]; a pool does not move
  // Written before the epoch is published, read after it was seen.
  const std::function<void(int)>* body = nullptr;
  bool stop = false;
  alignas(kCacheLine) std::atomic<uint32_t> epoch{0};
  alignas(kCacheLine) std::atomic<uint32_t> unfinished{0};
  std::vector<std::thread> threads;  // of ranks 1 and up
};

RankThreads::RankThreads(int num_ranks, int num_threads) {
  TRIPTYCH_CHECK(num_ranks >= 1 && num_threads >= 1, "a rank has at least one thread");
  state_ = std::make_unique<State>(num_ranks, num_threads);
  try {
    for (int rank = 1; rank < num_ranks; ++rank) {
      state_->threads.emplace_back([state = state_.get(), rank] { state->drive(rank); });
    }
  } catch (...) {  // a thread that was started must not outlive what it waits for
    state_->stop_all();
    throw;
  }
}

RankThreads::~RankThreads() { state_->stop_all(); }

int RankThreads::num_ranks() const { return static_cast<int>(state_->pools.size()); }

cpu::ThreadPool& RankThreads::pool(int rank) { return state_->pools[static_cast<size_t>(rank)]; }

void RankThreads::run(const std::function<void(int rank)>& body) {
  State& s = *state_;
  if (s.threads.empty()) return body(0);
  s.body = &body;
  s.unfinished.store(static_cast<uint32_t>(s.threads.size()), std::memory_order_relaxed);
  s.next_epoch();
  body(0);
  for (uint32_t left; (left = s.unfinished.load(std::memory_order_acquire)) != 0;) {
    cpu::wait_while_equal(s.unfinished, left, s.spin);
  }
}

std::shared_ptr<RankThreads> shared_rank_threads(int num_ranks, int num_threads) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, std::weak_ptr<RankThreads>> all;
  const std::lock_guard lock(mutex);
  std::weak_ptr<RankThreads>& entry = all[{num_ranks, num_threads}];
  std::shared_ptr<RankThreads> threads = entry.lock();
  if (threads == nullptr) entry = threads = std::make_shared<RankThreads>(num_ranks, num_threads);
  return threads;
}

}  // namespace triptych
