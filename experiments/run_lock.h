// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// RunLock: one run at a time writes to a database, so that two runs never measure each other.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace triptych {

/// Held until destruction or the end of the process, however it ends. Readers are not hindered.
class RunLock {
 public:
  /// A program that only reads may hold it for the time of one look (see dead_runs.h), which some
  /// attempts within a fifth of a second outlast.
  static constexpr int kAttempts = 10;

  /// Locks an existing database. Errors: kBusy when another run holds it; kIo.
  [[nodiscard]] static Result<RunLock> acquire(const std::filesystem::path& database,
                                               int attempts = kAttempts);
  RunLock() = default;
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;
  ~RunLock();

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace triptych
