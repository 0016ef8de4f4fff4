// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// From a stack with `engine: command` to what is started for it.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/command_engine.h"
#include "engine/weights.h"
#include "experiments/spec.h"

namespace triptych {

/// Hash of the program text behind a stack: the adapter, or every argument of its command that
/// names a file (from the spec's folder); part of a cell's content hash. Errors: kNotFound, kIo.
[[nodiscard]] Result<std::string> command_hash(const CommandSpec& command);

/// The engine that such a stack is at one workload point. `model` is a path that the child can
/// read, `shapes` the model's in the stack's weights. Errors: kIo (an adapter that cannot be
/// written to the temporary folder).
[[nodiscard]] Result<CommandEngineOptions> command_engine_options(
    const StackSpec& stack, const WorkloadSpec& workload,
    std::shared_ptr<const ModelWeights> shapes, const std::filesystem::path& model);

/// The folder for models that are written for external engines: `chosen`, or else TRIPTYCH_CACHE,
/// $XDG_CACHE_HOME/triptych or $HOME/.cache/triptych. Errors: kNotFound if there is none of them.
[[nodiscard]] Result<std::filesystem::path> cache_folder(const std::filesystem::path& chosen);

struct ExternalModelOptions {
  std::filesystem::path cache;                      ///< See cache_folder().
  const std::atomic<bool>* interrupted = nullptr;   ///< Set from outside: writing stops.
  std::function<void(std::string_view)> note = {};  ///< Is told that a model is written anew.
};

/// A path at which an external engine finds the model: the model's own, or, for a synthetic one, a
/// Hugging Face directory in f16 in the cache, which is written when it is not there or not as it
/// was written (see check_synthetic_directory()). Its numbers are those of `checkpoint`, whose hash
/// names it. Errors: those of cache_folder() and write_synthetic_directory(); kIo when a damaged
/// directory cannot be removed.
[[nodiscard]] Result<std::filesystem::path> external_model_path(
    const ModelRef& model, const Checkpoint& checkpoint, const ExternalModelOptions& options);

}  // namespace triptych
