// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace triptych {
namespace {

Unexpected system_error(const std::filesystem::path& path) {
  return fail(ErrorCode::kIo, std::strerror(errno), path.string());
}

}  // namespace

Result<FileWriter> FileWriter::create(const std::filesystem::path& path) {
  constexpr mode_t kMode = 0666;  // the umask takes away what the user does not want to give
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (fd < 0) return system_error(path);
  return FileWriter(path, fd);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Status FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status FileWriter::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status FileWriter::write_at(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return {};
}

Status FileWriter::close() {
  const bool synced = ::fsync(fd_) == 0;
  const Status status = synced ? Status() : Status(system_error(path_));
  const int closed = ::close(fd_);
  fd_ = -1;
  if (synced && closed != 0) return system_error(path_);
  return status;
}

}  // namespace triptych
