// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/environment.h"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/strings.h"
#include "base/version.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych {

namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Number at the start of `text`; absent when there is none.
std::optional<double> leading_number(std::string_view text) {
  std::istringstream stream{std::string(trim(text))};
  double value = 0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

/// Values of all "key : value" lines of a /proc file.
std::vector<std::string> fields(const std::string& text, std::string_view key) {
  std::vector<std::string> values;
  for (const std::string& line : split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (trim(std::string_view(line).substr(0, colon)) != key) continue;
    values.emplace_back(trim(std::string_view(line).substr(colon + 1)));
  }
  return values;
}

std::optional<double> mean_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

BuildInfo build_info() { return {kProgramVersion, kGitSha, kGitDirty, kCompiler}; }

Environment SystemProbe::environment() const {
  Environment result;
  const std::string cpuinfo = read_text(root_ / "proc/cpuinfo");
  const std::vector<std::string> models = fields(cpuinfo, "model name");
  result.cpu_model = models.empty() ? "unknown" : models.front();
  result.cores = cpu::available_cores();
  const std::vector<std::string> memory = fields(read_text(root_ / "proc/meminfo"), "MemTotal");
  if (!memory.empty()) {
    result.memory_bytes = static_cast<int64_t>(leading_number(memory.front()).value_or(0)) * 1024;
  }
  utsname name{};
  if (uname(&name) == 0) {
    result.os_kernel = std::string(name.sysname) + " " + name.release + " " + name.machine;
  }
  return result;
}

double SystemProbe::load_average() const {
  return leading_number(read_text(root_ / "proc/loadavg")).value_or(0);
}

std::optional<double> SystemProbe::cpu_mhz() const {
  std::vector<double> mhz;
  std::error_code ignored;  // the folder is absent on many virtual machines
  for (const auto& cpu : std::filesystem::directory_iterator(
           root_ / "sys/devices/system/cpu", std::filesystem::directory_options::none, ignored)) {
    const auto khz = leading_number(read_text(cpu.path() / "cpufreq/scaling_cur_freq"));
    if (khz) mhz.push_back(*khz / 1000);
  }
  if (mhz.empty()) {
    for (const std::string& value : fields(read_text(root_ / "proc/cpuinfo"), "cpu MHz")) {
      if (const auto number = leading_number(value)) mhz.push_back(*number);
    }
  }
  return mean_of(mhz);
}

}  // namespace triptych
