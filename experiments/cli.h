// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// run_cli(): the program `triptych`, without main().
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "experiments/runner.h"

namespace triptych {

/// Where a command writes: results to `out`, errors and notes to `err`.
struct CliStreams {
  std::ostream& out;
  std::ostream& err;
  /// How `run` and `resume` make engines; null: make_engine(). Replaced by tests.
  const EngineFactory* engines = nullptr;
};

/// Exit codes, documented in `triptych --help` and docs/cli_help.md.
enum ExitCode : int {
  kExitOk = 0,
  kExitPartial = 1,       ///< Finished, but some cells failed or were skipped.
  kExitBadInput = 2,      ///< Arguments, spec, model or trace file.
  kExitDatabase = 3,      ///< Missing, locked, read-only, newer schema, not ours.
  kExitUnsupported = 4,   ///< Device, or not in this build.
  kExitIo = 5,            ///< The system refused a read or a write.
  kExitOutOfMemory = 6,   ///< Does not fit.
  kExitInterrupted = 130  ///< Ctrl-C; `triptych resume` continues.
};

/// What an error is about: kNotFound and kCorrupt mean another exit code for a database than for a
/// file that the user gave.
enum class ErrorSubject : uint8_t { kInput, kDatabase };
[[nodiscard]] ExitCode exit_code(ErrorCode code, ErrorSubject subject);

/// Runs one command line (without the program's name) and returns the exit code.
[[nodiscard]] int run_cli(std::span<const std::string> args, CliStreams streams);

/// The text of `triptych --help`, or of `triptych <command> --help`; "" for an unknown command.
[[nodiscard]] std::string help_text(std::string_view command);
/// What `triptych --bash-completion` prints.
[[nodiscard]] std::string bash_completion();

}  // namespace triptych
