// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/progress.h"

#include <unistd.h>

#include <algorithm>
#include <ostream>

#include "base/strings.h"
#include "base/units.h"

namespace triptych {

namespace {

constexpr size_t kBarWidth = 24;
constexpr size_t kLineWidth = 100;
constexpr int64_t kLineEveryNs = 5'000'000'000;  // a log file should not grow by the pass

}  // namespace

ProgressStyle progress_style(bool quiet) {
  if (quiet) return ProgressStyle::kNone;
  return isatty(STDERR_FILENO) == 1 ? ProgressStyle::kBar : ProgressStyle::kLines;
}

std::string progress_line(int64_t done, int64_t total, int64_t done_ns, std::string_view what,
                          size_t width) {
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0;
  const auto filled = static_cast<size_t>(share * static_cast<double>(kBarWidth));
  std::string line = "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '-') + "]";
  line += str_format(" %3.0f%%  ", share * 100);
  if (done > 0 && total > done) {
    const double left = static_cast<double>(done_ns) / static_cast<double>(done) *
                        static_cast<double>(total - done);
    line += str_format("ETA %.0f s  ", left * 1e-9);
  }
  line += what;
  return line.substr(0, width);
}

Progress::~Progress() { clear_line(); }

void Progress::clear_line() {
  if (!line_open_) return;
  out_ << "\r" << std::string(kLineWidth, ' ') << "\r" << std::flush;
  line_open_ = false;
}

void Progress::set_total(int64_t passes) { total_ = passes; }

void Progress::drop_passes(int64_t passes) { total_ -= passes; }

void Progress::show(std::string_view what, int64_t now_ns) {
  if (style_ == ProgressStyle::kNone) return;
  std::string line = progress_line(done_, total_, done_ns_, what, kLineWidth);
  if (style_ == ProgressStyle::kBar) {
    line.resize(kLineWidth, ' ');  // covers what a longer line left behind
    out_ << "\r" << line << std::flush;
    line_open_ = true;
    return;
  }
  if (last_shown_ns_ != 0 && now_ns - last_shown_ns_ < kLineEveryNs) return;
  last_shown_ns_ = now_ns;
  out_ << line << std::endl;
}

void Progress::finish_pass(int64_t duration_ns) {
  ++done_;
  done_ns_ += duration_ns;
}

void Progress::note(std::string_view message) {
  if (style_ == ProgressStyle::kNone) return;
  clear_line();
  out_ << message << std::endl;
}

}  // namespace triptych
