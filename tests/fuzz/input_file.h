// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// InputFile: one file in memory for readers that open a path, rewritten for each input.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"

namespace triptych {

class InputFile {
 public:
  InputFile() : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    TRIPTYCH_CHECK(fd_ >= 0, "no file in memory");
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() { ::close(fd_); }

  /// Replaces the content. Precondition: nobody maps the file any more.
  void write(std::span<const uint8_t> bytes) {
    TRIPTYCH_CHECK(::ftruncate(fd_, 0) == 0, "the file cannot be emptied");
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), 0);
    TRIPTYCH_CHECK(written == std::ssize(bytes), "the file cannot be written");
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace triptych
