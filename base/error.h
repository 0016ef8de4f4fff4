// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Error: what went wrong, where, and which exit code it leads to.
#pragma once

#include <string>
#include <utility>

namespace triptych {

/// Why a call could not give its value. The CLI maps each code to a documented exit code.
enum class ErrorCode {
  kInvalidArgument,  ///< The user's text or argument is wrong (spec, option, query).
  kNotFound,         ///< A file, name, run or view does not exist.
  kCorrupt,          ///< A file contradicts itself or its format.
  kUnsupported,      ///< Well-formed, but this build or machine cannot do it.
  kIo,               ///< The operating system refused a read or a write.
  kBusy,             ///< The database is locked by another process.
  kReadOnly,         ///< The database or its folder cannot be written.
  kSchemaTooNew,     ///< The database was written by a newer Triptych.
  kDeviceLost,       ///< A device call failed; what this process still holds there is lost.
  kOutOfMemory,      ///< The request does not fit the stated limit; the message has the arithmetic.
};

/// One failure. `where` is "file", "file:line:col" or empty; `message` says what was found and
/// what was expected.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
  std::string where;

  /// "where: message", or only the message when there is no place to name.
  [[nodiscard]] std::string to_string() const {
    return where.empty() ? message : where + ": " + message;
  }
};

}  // namespace triptych
