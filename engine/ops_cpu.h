// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The CPU's table of operations: f32 activations, the kernels of kernels/cpu, one stream.
#pragma once

#include <memory>

#include "engine/model_config.h"
#include "engine/ops.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych {

/// Operations run at once and in the calling thread's order. A record's bytes come from the cost
/// model of its kernel. When the caller waits for its workers at the end of an operation, that is a
/// record "thread_pool_wait" of its own and the operation's record ends where it starts.
[[nodiscard]] std::unique_ptr<Ops> make_cpu_ops(const ModelConfig& config, cpu::ThreadPool& pool);

}  // namespace triptych
