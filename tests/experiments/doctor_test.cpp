// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace triptych {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A machine of files: /proc, a project and a PATH.
class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    std::string pattern = (fs::temp_directory_path() / "triptych_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    places_ = {.system_root = root_, .project = root_ / "project", .search_path = ""};
    write("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\n");
    write("proc/cpuinfo", "model name\t: Test CPU\n");
  }
  ~DoctorTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  DoctorCheck check(const std::string& name) {
    const auto checks = run_doctor(places_);
    const auto found = std::find_if(checks.begin(), checks.end(),
                                    [&](const DoctorCheck& c) { return c.name == name; });
    return found == checks.end() ? DoctorCheck{} : *found;
  }

  fs::path root_;
  DoctorPlaces places_;
};

TEST_F(DoctorTest, EveryMissingThingHasAFix) {
  size_t missing = 0;
  for (const DoctorCheck& c : run_doctor(places_)) {
    EXPECT_FALSE(c.found.empty()) << c.name;
    EXPECT_EQ(c.fix.empty(), c.state == CheckState::kOk) << c.name;
    missing += c.state == CheckState::kMissing ? 1 : 0;
  }
  EXPECT_GE(missing, 2u) << "model and python are not in an empty project";
}

TEST_F(DoctorTest, ModelAndPythonAreFound) {
  EXPECT_EQ(check("model").state, CheckState::kMissing);
  EXPECT_EQ(check("model").fix, "scripts/quickstart.sh");
  EXPECT_EQ(check("python").state, CheckState::kMissing);
  write("project/models/SmolLM2-135M-Instruct.Q4_1.gguf", "12345");
  write("project/.venv/bin/python", "");
  EXPECT_EQ(check("model").state, CheckState::kOk);
  EXPECT_THAT(check("model").found, HasSubstr("5.00 B"));
  EXPECT_EQ(check("python").state, CheckState::kOk);
}

TEST_F(DoctorTest, MemoryIsComparedWithWhatTheQuickstartNeeds) {
  EXPECT_EQ(check("memory").state, CheckState::kOk);
  EXPECT_THAT(check("memory").found, HasSubstr("2.86 GiB available"));
  write("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 1000000 kB\n");
  EXPECT_EQ(check("memory").state, CheckState::kMissing);
  EXPECT_THAT(check("memory").found, HasSubstr("needs 1.5 GB"));
}

TEST_F(DoctorTest, TheMachineIsDescribed) {
  EXPECT_THAT(check("CPU").found, HasSubstr("Test CPU"));
  EXPECT_FALSE(check("SIMD").found.empty());
  EXPECT_THAT(check("SQLite").found, HasSubstr("3."));
}

#ifndef TRIPTYCH_HAS_CUDA
TEST_F(DoctorTest, CudaToolkitIsFoundOnThePath) {
  EXPECT_THAT(check("CUDA build").found, HasSubstr("no nvcc here"));
  write("tools/nvcc", "");
  places_.search_path = "::" + (root_ / "tools").string();
  EXPECT_THAT(check("CUDA build").found, HasSubstr((root_ / "tools").string()));
  EXPECT_EQ(check("CUDA build").fix, "cmake --workflow --preset gpu");
}
#endif

TEST(RenderDoctor, OneLineACheck) {
  EXPECT_EQ(render_doctor({{"model", CheckState::kMissing, "no file", "get it"},
                           {"CPU", CheckState::kOk, "fine", ""}}),
            "missing  model  no file\n"
            "                fix: get it\n"
            "ok       CPU    fine\n"
            "1 missing; all of it is optional.\n");
  EXPECT_EQ(render_doctor({{"CPU", CheckState::kOk, "fine", ""}}),
            "ok       CPU  fine\nNothing is missing.\n");
}

}  // namespace
}  // namespace triptych
