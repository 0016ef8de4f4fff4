// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The command line as tests see it: arguments in, exit code and text out.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/cli.h"

namespace triptych {

struct Ended {
  int code = 0;
  std::string out;
  std::string err;
};

inline Ended run(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_cli(args, {out, err});
  return {code, out.str(), err.str()};
}

inline std::string tiny_spec() {
  return (std::filesystem::path(TRIPTYCH_SOURCE_DIR) / "experiments" / "specs" / "tiny.yaml")
      .string();
}

/// A folder with a database that holds one small run, made once for all tests.
class CliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (std::filesystem::temp_directory_path() / "triptych_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    const Ended ended =
        run({"run", tiny_spec(), "--db", db(), "--quiet", "--set", "measure.blocks=3", "--set",
             "workload.output_tokens=6", "--set", "measure.trace_steps=4"});
    ASSERT_EQ(ended.code, kExitOk) << ended.err;
    ASSERT_THAT(ended.out, ::testing::HasSubstr("Threats"));
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  static std::string db() { return (folder_ / "results.sqlite").string(); }
  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return path(name);
  }

  static constexpr const char* kCell = "full@c=1,prompt=16,output=6";
  static inline std::filesystem::path folder_;
};

}  // namespace triptych
