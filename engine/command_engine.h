// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// An engine of another project as a child process; docs/EXTERNAL_ENGINES.md is the protocol.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/adapter_file.h"
#include "engine/child_process.h"
#include "engine/command_messages.h"
#include "engine/engine.h"
#include "engine/weights.h"

namespace triptych {

/// How long an engine may be silent, and how long it may take.
struct CommandTimeouts {
  int64_t start_ns = 900'000'000'000;   ///< Until the model is loaded.
  int64_t record_ns = 600'000'000'000;  ///< Between two records; a compilation may be in it.
  int64_t pass_ns = 7'200'000'000'000;
};

struct CommandEngineOptions {
  std::string name;  ///< For messages: the adapter's name, or that of the program.
  ChildCommand command;
  std::shared_ptr<const AdapterFile> adapter;  ///< What `command` runs, if that is a built-in one.
  OpenMessage open;
  EngineOptions engine;
  std::shared_ptr<const ModelWeights> shapes;  ///< For decode_step_cost(); values are not read.
  CommandTimeouts timeouts;
  /// When set, a call that waits for the child returns kIo "interrupted". May be null.
  const std::atomic<bool>* interrupted = nullptr;
};

/// The protocol has no words for another choice of tokens than greedy. Errors: kUnsupported.
[[nodiscard]] Status check_command_sampling(const SamplingParams& sampling);

/// Starts the child and waits until it has loaded the model. generate() with a sink,
/// generate_to_file() and score() are kUnsupported where can_trace(), writes_traces() and
/// can_score() say no. Whatever else goes wrong with the child
/// (it ends, is silent too long, breaks the protocol) ends it, and this and every later call gives
/// an error that quotes the end of its standard error. Errors: kNotFound (no such program), kIo,
/// kCorrupt (protocol); kUnsupported (sampling, or where the child says so), kOutOfMemory (it
/// says).
[[nodiscard]] Result<std::unique_ptr<Engine>> make_command_engine(
    const CommandEngineOptions& options);

}  // namespace triptych
