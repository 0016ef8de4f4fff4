// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// run_generation(): requests in, tokens and their times out; the loop around the scheduler.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/engine.h"
#include "engine/executor.h"

namespace triptych {

/// Runs every request to its end. Requests with an arrival time are submitted then; the others by
/// `options.max_batch` clients, each of which submits the next when its last has finished.
/// Preconditions: every request is within the limits of `options`; the executor's cache is empty,
/// and it is again afterwards unless an exception (std::bad_alloc) left it as it was.
[[nodiscard]] GenerateResult run_generation(Executor& executor, const EngineOptions& options,
                                            std::span<const Request> requests,
                                            std::optional<int32_t> eos_token_id,
                                            ActivitySink* sink);

}  // namespace triptych
