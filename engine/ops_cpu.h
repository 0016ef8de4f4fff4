// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The CPU's table of operations: f32 activations, the kernels of kernels/cpu, one stream.
#pragma once

#include <memory>
#include <mutex>

#include "engine/model_config.h"
#include "engine/ops.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych {

/// The threads of every engine of this process that uses the same number of them, so that engines
/// that are idle hold none. Engines take turns: hold `busy` while using the pool.
struct SharedThreadPool {
  explicit SharedThreadPool(int num_threads) : pool(num_threads) {}
  cpu::ThreadPool pool;
  std::mutex busy;
};
/// The pool of `num_threads` threads; made on first use, gone with its last user.
[[nodiscard]] std::shared_ptr<SharedThreadPool> shared_thread_pool(int num_threads);

/// Operations run at once and in the calling thread's order. A record's bytes come from the cost
/// model of its kernel. When the caller waits for its workers at the end of an operation, that is a
/// record "thread_pool_wait" of its own and the operation's record ends where it starts.
[[nodiscard]] std::unique_ptr<Ops> make_cpu_ops(const ModelConfig& config, cpu::ThreadPool& pool);

}  // namespace triptych
