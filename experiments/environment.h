// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Environment: the machine and the build that a run's numbers belong to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace triptych {

struct Environment {
  std::string cpu_model;     ///< "unknown" where the system does not say.
  int64_t cores = 0;         ///< That this process may use.
  int64_t memory_bytes = 0;  ///< Installed; 0 = unknown.
  std::string os_kernel;     ///< "Linux 6.1.0-18-amd64 x86_64".
};

/// The program itself. git_sha is "unknown" when built outside a checkout.
struct BuildInfo {
  std::string_view program_version;
  std::string_view git_sha;
  bool git_dirty = false;
  std::string_view compiler;  ///< Name, version, flags.
};

[[nodiscard]] BuildInfo build_info();

/// Reads the files of Linux under `root` ("/proc", "/sys"); tests give a folder of their own.
class SystemProbe {
 public:
  explicit SystemProbe(std::filesystem::path root = "/") : root_(std::move(root)) {}

  [[nodiscard]] Environment environment() const;
  /// Runnable threads, mean over the last minute; 0 where the system does not say.
  [[nodiscard]] double load_average() const;
  /// Mean clock over the cores, from cpufreq or else /proc/cpuinfo; absent where neither says.
  [[nodiscard]] std::optional<double> cpu_mhz() const;

 private:
  std::filesystem::path root_;
};

}  // namespace triptych
