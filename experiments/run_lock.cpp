// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace triptych {

// flock() and SQLite's own fcntl() locks do not see each other on local file systems. Closing this
// descriptor drops the process's fcntl() locks, so a RunLock must outlive the Store.
Result<RunLock> RunLock::acquire(const std::filesystem::path& database, int attempts) {
  const int fd = open(database.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::kIo, std::strerror(errno), database.string());
  RunLock lock(fd);
  constexpr auto kPause = std::chrono::milliseconds(20);
  for (int attempt = 1; attempt <= attempts; ++attempt) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) break;
    if (attempt < attempts) std::this_thread::sleep_for(kPause);
  }
  if (errno == EWOULDBLOCK) {
    return fail(ErrorCode::kBusy,
                "another triptych run is measuring into this database; wait for it to end",
                database.string());
  }
  return fail(ErrorCode::kIo, std::strerror(errno), database.string());
}

RunLock::RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace triptych
