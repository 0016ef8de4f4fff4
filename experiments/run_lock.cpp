// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace triptych {

// flock() and SQLite's own fcntl() locks do not see each other on local file systems. Closing this
// descriptor drops the process's fcntl() locks, so a RunLock must outlive the Store.
Result<RunLock> RunLock::acquire(const std::filesystem::path& database) {
  const int fd = open(database.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::kIo, std::strerror(errno), database.string());
  RunLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
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
