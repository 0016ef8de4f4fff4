// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// TRIPTYCH_CHECK: the program is wrong. Never used for input; the same in every build type.
#pragma once

#include <string_view>

namespace triptych {

/// Prints "file:line: check failed: condition: message" to standard error and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message) noexcept;

}  // namespace triptych

#define TRIPTYCH_CHECK(condition, message)                                 \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::triptych::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
