// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// run_program(): the program in a process of its own, for what a process can do only once.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_dir.h"

namespace triptych {

struct ChildOptions {
  std::string program = TRIPTYCH_PROGRAM;
  std::string out = {};               ///< File for standard output; "" = captured.
  rlim_t file_bytes = RLIM_INFINITY;  ///< Longest file that it may write.
};

struct ChildEnd {
  int code = -1;  ///< Exit code; -1 if a signal ended it.
  std::string out;
  std::string err;
};

[[nodiscard]] inline std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// A program of this build that lies beside the one that runs.
[[nodiscard]] inline std::string program_beside(std::string_view name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

/// Runs the program `triptych` of this build, or another one, and waits for its end.
[[nodiscard]] inline ChildEnd run_program(std::vector<std::string> args,
                                          const ChildOptions& options = {}) {
  const TempDir dir;
  const std::string out = options.out.empty() ? (dir / "out").string() : options.out;
  const std::string err = (dir / "err").string();
  args.insert(args.begin(), options.program);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{options.file_bytes, options.file_bytes};
    const bool ready = freopen(out.c_str(), "w", stdout) != nullptr &&
                       freopen(err.c_str(), "w", stderr) != nullptr &&
                       setrlimit(RLIMIT_FSIZE, &limit) == 0;
    if (ready) execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = options.out.empty() ? read_text(out) : "",
          .err = read_text(err)};
}

}  // namespace triptych
