// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// DeviceError: a device call failed and the run is over. Needs no CUDA, so every build can catch
// it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace triptych {

/// Thrown by the check macros of device APIs. After a sticky error the context is lost, so the
/// catcher turns it into a failed row and starts the remaining work in a fresh process; memory that
/// cannot be had leaves the context as it was.
class DeviceError : public std::runtime_error {
 public:
  /// `call` is the source text of the call, `code` and `text` what the API answered.
  DeviceError(const char* file, int line, std::string call, int code, std::string text)
      : std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                           text + " (" + std::to_string(code) + ")"),
        file_(file),
        line_(line),
        call_(std::move(call)),
        code_(code),
        text_(std::move(text)) {}

  [[nodiscard]] const char* file() const { return file_; }
  [[nodiscard]] int line() const { return line_; }
  [[nodiscard]] const std::string& call() const { return call_; }
  [[nodiscard]] int code() const { return code_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  /// text() then says how much is free.
  [[nodiscard]] bool out_of_memory() const { return code_ == kOutOfMemory; }

  static constexpr int kOutOfMemory = 2;  ///< As the CUDA runtime numbers it.

 private:
  const char* file_;  // a string literal (__FILE__)
  int line_;
  std::string call_;
  int code_;
  std::string text_;
};

}  // namespace triptych
