// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// FileWriter: a new file whose every byte is known to have reached the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"

namespace triptych {

class FileWriter {
 public:
  /// Creates `path`; never replaces a file. Errors: kIo naming the path and the system's reason,
  /// also if there is such a file.
  [[nodiscard]] static Result<FileWriter> create(const std::filesystem::path& path);

  FileWriter(FileWriter&& other) noexcept : path_(std::move(other.path_)), fd_(other.fd_) {
    other.fd_ = -1;
  }
  FileWriter& operator=(FileWriter&&) = delete;
  /// Closes without telling about errors: a file that was not close()d is not whole.
  ~FileWriter();

  /// Appends all of `bytes`. Errors: kIo (disk full, quota, limit on file sizes).
  [[nodiscard]] Status write(std::span<const std::byte> bytes);
  [[nodiscard]] Status write(std::string_view text);
  /// Writes all of `bytes` from `offset` on, wherever write() stands. Several threads may do so at
  /// once, each to a part of its own. Errors: as write().
  [[nodiscard]] Status write_at(int64_t offset, std::span<const std::byte> bytes) const;
  /// Waits until the device has the data, where late errors such as a full disk show.
  [[nodiscard]] Status close();

 private:
  FileWriter(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::filesystem::path path_;
  int fd_;
};

}  // namespace triptych
