// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// InterruptGuard: what Ctrl-C, SIGTERM and SIGHUP mean while a command works.
#pragma once

#include <atomic>
#include <string>

namespace triptych {

/// While it lives, the first of SIGINT, SIGTERM and SIGHUP sets a flag and says on standard error
/// what follows from it. The next one kills what external engines still run, says so, and ends the
/// program by that signal, as SIGQUIT does at once. A SIGHUP that was ignored (nohup) stays
/// ignored. One at a time.
class InterruptGuard {
 public:
  /// `first` and `second`: lines that the two signals print, each with its line break.
  InterruptGuard(std::string first, std::string second);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Lives as long as the program.
  [[nodiscard]] static const std::atomic<bool>& interrupted();
};

}  // namespace triptych
