// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace triptych {
namespace {

TEST(Progress, LineHasBarShareAndTimeLeft) {
  EXPECT_EQ(progress_line(1, 4, 2'000'000'000, "block 1/4  full", 100),
            "[######------------------]  25%  ETA 6 s  block 1/4  full");
  EXPECT_EQ(progress_line(0, 4, 0, "loading", 100), "[------------------------]   0%  loading");
  EXPECT_EQ(progress_line(9, 4, 1, "x", 100), "[########################] 100%  x");
  EXPECT_EQ(progress_line(0, 0, 0, std::string(200, 'x'), 50).size(), 50U);
}

TEST(Progress, BarStaysOnOneLineAndLeavesNothingBehind) {
  std::ostringstream out;
  {
    Progress progress(ProgressStyle::kBar, out);
    progress.set_total(2);
    progress.show("first", 1);
    progress.finish_pass(10);
    progress.show("second", 2);
  }
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0);
  EXPECT_TRUE(text.ends_with(std::string(100, ' ') + "\r"));
}

TEST(Progress, LinesAreRare) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kLines, out);
  progress.set_total(100);
  for (int64_t second = 1; second <= 12; ++second) progress.show("x", second * 1'000'000'000);
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);  // after 1, 6 and 11 s
}

TEST(Progress, QuietSaysNothing) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kNone, out);
  progress.show("x", 1);
  progress.note("y");
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(progress_style(true), ProgressStyle::kNone);
}

TEST(Progress, DroppedPassesDoNotCount) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kLines, out);
  progress.set_total(10);
  progress.drop_passes(6);
  progress.finish_pass(1);
  progress.finish_pass(1);
  progress.show("x", 1);
  EXPECT_NE(out.str().find(" 50%"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace triptych
