// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/environment.h"

#include <gtest/gtest.h>

#include "kernels/cpu/thread_pool.h"
#include "tests/experiments/experiment_fixture.h"

namespace triptych {
namespace {

/// A folder that looks like the root of a machine.
class EnvironmentTest : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    folder_.write(name, text);
  }
  test::ExperimentFolder folder_;
  SystemProbe probe_{folder_ / ""};
};

TEST_F(EnvironmentTest, ReadsModelMemoryAndLoad) {
  write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Example 9000: fast\ncpu MHz\t\t: 2000.000\n\n"
        "processor\t: 1\nmodel name\t: Example 9000: fast\ncpu MHz\t\t: 3000.000\n");
  write("proc/meminfo", "MemTotal:        4096 kB\nMemFree:  12 kB\n");
  write("proc/loadavg", "1.25 0.50 0.10 2/345 6789\n");
  const Environment environment = probe_.environment();
  EXPECT_EQ(environment.cpu_model, "Example 9000: fast");
  EXPECT_EQ(environment.memory_bytes, 4096 * 1024);
  EXPECT_EQ(environment.cores, cpu::available_cores());
  EXPECT_TRUE(environment.os_kernel.starts_with("Linux ")) << environment.os_kernel;
  EXPECT_DOUBLE_EQ(probe_.load_average(), 1.25);
  EXPECT_EQ(probe_.cpu_mhz(), 2500.0);
}

TEST_F(EnvironmentTest, CpufreqGoesBeforeCpuinfo) {
  write("proc/cpuinfo", "cpu MHz : 1000\n");
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3200000\n");
  write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3400000\n");
  EXPECT_EQ(probe_.cpu_mhz(), 3300.0);
}

TEST_F(EnvironmentTest, MissingFilesAreUnknownNotErrors) {
  EXPECT_EQ(probe_.environment().cpu_model, "unknown");
  EXPECT_EQ(probe_.environment().memory_bytes, 0);
  EXPECT_EQ(probe_.load_average(), 0);
  EXPECT_EQ(probe_.cpu_mhz(), std::nullopt);
}

TEST(BuildInfo, NamesVersionCommitAndCompiler) {
  const BuildInfo info = build_info();
  EXPECT_FALSE(info.program_version.empty());
  EXPECT_TRUE(info.git_sha == "unknown" || info.git_sha.size() == 40) << info.git_sha;
  EXPECT_NE(info.compiler.find(' '), std::string_view::npos) << info.compiler;
}

}  // namespace
}  // namespace triptych
