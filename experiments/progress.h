// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Progress: how far a run is, on standard error, for a person at a terminal or a log file.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace triptych {

enum class ProgressStyle : uint8_t {
  kNone,   ///< Says nothing.
  kLines,  ///< A plain line every few seconds: output is a file or a pipe.
  kBar,    ///< One line that is drawn over: output is a terminal.
};

/// kBar on a terminal, kLines otherwise, kNone when `quiet`.
[[nodiscard]] ProgressStyle progress_style(bool quiet);

/// Counts passes. Estimates the time left from the mean of the passes that are over.
class Progress {
 public:
  Progress(ProgressStyle style, std::ostream& out) : style_(style), out_(out) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_total(int64_t passes);
  /// So many of them are not needed after all.
  void drop_passes(int64_t passes);
  /// Says what runs now, e.g. "c=1,prompt=32,output=64  block 3/10  full".
  void show(std::string_view what, int64_t now_ns);
  /// One pass of those in set_total() is over.
  void finish_pass(int64_t duration_ns);
  /// A message that stays: on a line of its own, whatever the style but kNone.
  void note(std::string_view message);

 private:
  void clear_line();

  ProgressStyle style_;
  std::ostream& out_;
  int64_t total_ = 0;
  int64_t done_ = 0;
  int64_t done_ns_ = 0;
  int64_t last_shown_ns_ = 0;
  bool line_open_ = false;
};

/// "[#########---------------]  37%  ETA 12 s  what", cut to `width` columns.
[[nodiscard]] std::string progress_line(int64_t done, int64_t total, int64_t done_ns,
                                        std::string_view what, size_t width);

}  // namespace triptych
