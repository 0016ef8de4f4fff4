// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// RankThreads: the threads of a CPU engine, one driver and one kernel pool a rank.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "kernels/cpu/thread_pool.h"

namespace triptych {

/// Rank 0 is driven by whoever calls run(), every other rank by a thread of its own that waits as
/// the workers of a pool do. Engines take turns: hold `busy` while using the threads.
class RankThreads {
 public:
  /// `num_threads` in all, divided among the ranks; at least one each. Throws std::system_error.
  RankThreads(int num_ranks, int num_threads);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  [[nodiscard]] int num_ranks() const;
  /// The threads of a rank's kernels, its driver included. To be used by that driver only.
  [[nodiscard]] cpu::ThreadPool& pool(int rank);

  /// Runs body(rank) of every rank at once, each on its driver, and returns when all are done.
  /// `body` must not throw.
  void run(const std::function<void(int rank)>& body);

  std::mutex busy;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The threads of every engine of this process that has as many ranks and threads, so that engines
/// that are idle hold none. Made on first use, gone with their last user.
[[nodiscard]] std::shared_ptr<RankThreads> shared_rank_threads(int num_ranks, int num_threads);

}  // namespace triptych
