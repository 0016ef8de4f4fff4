// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Golden files: a test's output compared with a file that is reviewed as a diff.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace triptych {

/// The folder of all golden cases.
[[nodiscard]] inline std::filesystem::path golden_dir() {
  return std::filesystem::path(TRIPTYCH_SOURCE_DIR) / "tests" / "golden";
}

/// The first line that differs, numbered from 1, with both texts of it.
[[nodiscard]] inline std::string first_difference(std::string_view expected,
                                                  std::string_view actual) {
  const auto take_line = [](std::string_view& rest) {
    if (rest.empty()) return std::string_view("<end of text>");
    const size_t end = rest.find('\n');
    const std::string_view line =
        end == std::string_view::npos ? rest : rest.substr(0, end + 1);  // keeps the newline
    rest.remove_prefix(line.size());
    return line;
  };
  for (int number = 1; !expected.empty() || !actual.empty(); ++number) {
    const std::string_view want = take_line(expected);
    const std::string_view got = take_line(actual);
    if (want == got) continue;
    std::ostringstream text;
    text << "line " << number << "\n  expected: " << ::testing::PrintToString(std::string(want))
         << "\n  actual:   " << ::testing::PrintToString(std::string(got));
    return text.str();
  }
  return "no difference";
}

/// Fails the test unless `actual` equals the file byte by byte. `path` is absolute or relative to
/// golden_dir(). With TRIPTYCH_UPDATE_GOLDEN=1 in the environment the file is written instead, so
/// that the change shows up in the next diff.
inline void expect_golden(const std::filesystem::path& path, std::string_view actual) {
  const std::filesystem::path file = path.is_absolute() ? path : golden_dir() / path;
  const char* update = std::getenv("TRIPTYCH_UPDATE_GOLDEN");
  if (update != nullptr && std::string_view(update) == "1") {
    std::error_code ignored;  // a folder that cannot be made shows as a file that cannot be written
    std::filesystem::create_directories(file.parent_path(), ignored);
    std::ofstream out(file, std::ios::binary);
    out << actual;
    out.close();
    EXPECT_TRUE(out.good()) << "cannot write " << file;
    return;
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    ADD_FAILURE() << "cannot read " << file << "; TRIPTYCH_UPDATE_GOLDEN=1 writes it";
    return;
  }
  std::ostringstream expected;
  expected << in.rdbuf();
  if (expected.str() == actual) return;
  ADD_FAILURE() << file << " differs at " << first_difference(expected.str(), actual)
                << "\nTRIPTYCH_UPDATE_GOLDEN=1 accepts the new text; review it as a diff.";
}

}  // namespace triptych
