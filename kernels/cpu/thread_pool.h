// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// ThreadPool: the one set of worker threads of a process's CPU kernels.
#pragma once

#include <cstdint>
#include <memory>

namespace triptych::cpu {

/// Non-owning reference to a callable body(begin, end, worker); cheaper than std::function and
/// never allocates. The callable must outlive the call.
class RangeBody {
 public:
  template <class F>
  RangeBody(F& body)  // implicit on purpose: call sites pass a named lambda
      : object_(&body), call_([](void* object, int64_t begin, int64_t end, int worker) {
          (*static_cast<F*>(object))(begin, end, worker);
        }) {}
  void operator()(int64_t begin, int64_t end, int worker) const {
    call_(object_, begin, end, worker);
  }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t, int);
};

/// A fixed set of threads; the caller is worker 0. Workers spin for a short while after a region
/// and then sleep, so that back-to-back operations start within a microsecond and an idle engine
/// uses no CPU. Not reentrant: one region at a time, from one thread.
class ThreadPool {
 public:
  /// num_threads >= 1, the caller included. 1 starts no thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const;

  /// Splits [0, count) into a few contiguous chunks per thread, each a multiple of `grain` but the
  /// last, runs body on every chunk once, and returns when all are done. Chunks depend only on
  /// (count, grain, num_threads); which thread runs which, and so the `worker` given to body,
  /// depends on who is free: results must not depend on it. One thread gets the whole range in one
  /// call.
  void parallel_for(int64_t count, int64_t grain, RangeBody body);

  /// When set, parallel_for notes when the caller found no more chunks to run and when the region
  /// ended (now_ns clock): the difference is time the caller waited. Off by default.
  void set_measure_wait(bool on);
  struct Wait {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };
  /// The wait of the last region; start == end when there was none or measuring is off.
  [[nodiscard]] Wait last_wait() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Cores this process may use (sched_getaffinity), at least 1.
[[nodiscard]] int available_cores();

}  // namespace triptych::cpu
