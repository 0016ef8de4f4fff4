// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// ChildProcess: another program that is spoken to in lines, and that never outlives its owner.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace triptych {

struct ChildCommand {
  std::vector<std::string> argv;  ///< A program without a slash is searched in PATH. Not empty.
  std::filesystem::path working_directory;  ///< "" = that of this process.
  int64_t close_grace_ns = 5'000'000'000;   ///< From the end of its input to SIGTERM.
  int64_t term_grace_ns = 2'000'000'000;    ///< From SIGTERM to SIGKILL.
};

/// Lines go in and out through a socket and a pipe; its standard error is kept. It is the leader of
/// a process group of its own, so that Ctrl-C reaches it only through its owner, and gets SIGKILL
/// when the thread that started it ends, however that happens.
class ChildProcess {
 public:
  /// Bounds the memory that a child without line breaks can take.
  static constexpr size_t kMaxLine = size_t{32} << 20;

  /// Errors: kNotFound (no such program or folder), kIo (what the system refuses).
  [[nodiscard]] static Result<ChildProcess> start(const ChildCommand& command);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  /// stop(), if it was not called.
  ~ChildProcess();

  /// Writes `text` and a line break, reading meanwhile what the child says, so that neither waits
  /// for the other. Errors: kIo (the child closed its input, time is up, interrupted).
  [[nodiscard]] Status write_line(std::string_view text, int64_t deadline_ns,
                                  const std::atomic<bool>* interrupted);
  /// The next line without its break; nothing when the child has closed its output or has ended,
  /// even while a process that it started holds that output open. Text after the last break is the
  /// last line. Errors: kIo (time is up, interrupted), kCorrupt (above kMaxLine).
  [[nodiscard]] Result<std::optional<std::string>> read_line(int64_t deadline_ns,
                                                             const std::atomic<bool>* interrupted);
  /// Lines that read_line() has given so far.
  [[nodiscard]] int64_t lines_read() const { return lines_read_; }

  /// Ends its input, waits, then signals its group as ChildCommand says, and reaps it.
  void stop();
  /// SIGKILL at once, for a child that broke the protocol.
  void kill();
  /// "exit code 3", "signal 11 (Segmentation fault)"; waits at most `wait_ns` for that end, "" if
  /// the child still runs.
  [[nodiscard]] std::string end_text(int64_t wait_ns);
  /// The last lines of its standard error, at most about 2000 bytes; "" if it said nothing.
  [[nodiscard]] std::string error_tail() const;

 private:
  ChildProcess() = default;

  /// Waits for its end without reaping it, so that its number still names its group.
  [[nodiscard]] bool wait_end(int64_t wait_ns);
  void signal_group(int signal) const;
  /// Sets gone_ when the child has ended, and takes what it left in the pipe. Looks only so often.
  [[nodiscard]] Status notice_end();
  /// Waits for the child to take or give bytes, or until it is gone_. Errors as above.
  [[nodiscard]] Status wait_ready(short in_events, short& in_ready, short& out_ready,
                                  int64_t deadline_ns, const std::atomic<bool>* interrupted);
  [[nodiscard]] Status fill_buffer();

  ChildCommand command_;
  pid_t pid_ = -1;
  int in_ = -1;   ///< Socket to its standard input.
  int out_ = -1;  ///< Pipe from its standard output.
  int err_ = -1;  ///< File without a name that holds its standard error.
  bool out_ended_ = false;
  bool gone_ = false;         ///< It has ended, and all that it wrote is in buffer_.
  int64_t next_look_ns_ = 0;  ///< When to look next whether it has ended.
  std::optional<std::string> end_text_;
  std::string buffer_;
  size_t begin_ = 0;    ///< Where the next line begins in it.
  size_t scanned_ = 0;  ///< Up to here there is no line break.
  int64_t lines_read_ = 0;
};

/// SIGKILL to the group of every ChildProcess, for a signal handler that ends the program: takes no
/// lock, allocates nothing and reaps nobody.
void kill_child_groups() noexcept;

}  // namespace triptych
