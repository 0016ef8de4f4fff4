// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/doctor.h"

#include <sqlite3.h>

#include <algorithm>
#include <system_error>

#include "base/strings.h"
#include "base/units.h"
#include "experiments/environment.h"
#include "experiments/plan_estimate.h"
#include "experiments/table.h"
#include "kernels/cpu/linear.h"
#include "kernels/device_info.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr std::string_view kPython = ".venv/bin/python";
constexpr std::string_view kQuickstart = "scripts/quickstart.sh";
/// The quickstart stays below 1.5 GB; less free memory than that and the system would swap.
constexpr int64_t kNeededBytes = 1'500'000'000;

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

DoctorCheck ok(std::string name, std::string found) {
  return {std::move(name), CheckState::kOk, std::move(found), ""};
}
DoctorCheck missing(std::string name, std::string found, std::string fix) {
  return {std::move(name), CheckState::kMissing, std::move(found), std::move(fix)};
}

DoctorCheck check_memory(const DoctorPlaces& places, const Environment& environment) {
  const auto available = available_memory_bytes(places.system_root);
  std::string text = format_bytes(static_cast<double>(environment.memory_bytes)) + " installed";
  if (!available) return ok("memory", text);
  text += ", " + format_bytes(static_cast<double>(*available)) + " available";
  if (*available >= kNeededBytes) return ok("memory", text);
  return missing("memory", text + "; the quickstart needs 1.5 GB",
                 "triptych run experiments/specs/tiny.yaml");
}

DoctorCheck check_model(const DoctorPlaces& places) {
  const fs::path path = places.project / kModel;
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (!error) {
    return ok("model", std::string(kModel) + ", " + format_bytes(static_cast<double>(bytes)));
  }
  return missing(
      "model",
      "no " + std::string(kModel) + "; specs fall back to a synthetic model of the same shapes",
      std::string(kQuickstart));
}

DoctorCheck check_python(const DoctorPlaces& places) {
  if (file_exists(places.project / kPython)) return ok("python", std::string(kPython));
  return missing("python",
                 "no " + std::string(kPython) +
                     "; needed for notebooks and for the reference of the model tests only",
                 std::string(kQuickstart));
}

/// The CUDA half: this build, the compiler that could make another, and the devices.
std::vector<DoctorCheck> check_cuda(const DoctorPlaces& places) {
  std::vector<DoctorCheck> checks;
#ifdef TRIPTYCH_HAS_CUDA
  constexpr bool kCudaBuild = true;
#else
  constexpr bool kCudaBuild = false;
#endif
  std::vector<std::string> folders = split(places.search_path, ':');
  folders.push_back((places.system_root / "usr/local/cuda/bin").string());
  const auto nvcc = std::find_if(folders.begin(), folders.end(), [](const std::string& folder) {
    return !folder.empty() && file_exists(fs::path(folder) / "nvcc");
  });
  const bool driver = file_exists(places.system_root / "proc/driver/nvidia/version");
  if (kCudaBuild) {
    checks.push_back(ok("CUDA build", "yes"));
  } else if (nvcc == folders.end()) {
    checks.push_back(missing("CUDA build", "no, and no nvcc here; this build runs on the CPU",
                             "install the CUDA toolkit, then cmake --workflow --preset gpu"));
  } else {
    checks.push_back(missing("CUDA build", "no; this build runs on the CPU (nvcc in " + *nvcc + ")",
                             "cmake --workflow --preset gpu"));
  }
  const auto devices = query_devices();
  if (devices) {
    for (const DeviceInfo& device : *devices) {
      const Status usable = check_architecture(device);
      checks.push_back(usable ? ok("GPU", device.to_string())
                              : missing("GPU", usable.error().message,
                                        "a newer GPU, or stacks with \"device: cpu\""));
    }
  } else if (driver && !kCudaBuild) {
    checks.push_back(missing("GPU", "an NVIDIA driver is loaded, but this build cannot use it",
                             "cmake --workflow --preset gpu"));
  } else if (driver) {
    checks.push_back(missing("GPU", devices.error().message, "nvidia-smi"));
  } else {
    checks.push_back(missing("GPU", "none; no NVIDIA driver is loaded; only CUDA stacks need one",
                             "apt-get install nvidia-driver, if this machine has an NVIDIA GPU"));
  }
  return checks;
}

}  // namespace

std::vector<DoctorCheck> run_doctor(const DoctorPlaces& places) {
  const Environment environment = SystemProbe(places.system_root).environment();
  const BuildInfo build = build_info();
  std::vector<DoctorCheck> checks = {
      ok("program", std::string(build.program_version) + ", commit " + std::string(build.git_sha) +
                        (build.git_dirty ? ", modified" : "")),
      ok("compiler", std::string(build.compiler)),
      ok("system", environment.os_kernel),
      ok("CPU", environment.cpu_model + str_format(", %lld cores for this process",
                                                   static_cast<long long>(environment.cores))),
      ok("SIMD", std::string(cpu::simd_target())),
      check_memory(places, environment),
      ok("SQLite", sqlite3_libversion()),
      check_model(places),
      check_python(places),
  };
  for (DoctorCheck& check : check_cuda(places)) checks.push_back(std::move(check));
  return checks;
}

std::string render_doctor(const std::vector<DoctorCheck>& checks) {
  size_t width = 0;
  size_t count = 0;
  for (const DoctorCheck& check : checks) {
    width = std::max(width, display_width(check.name));
    count += check.state == CheckState::kMissing ? 1 : 0;
  }
  std::string text;
  for (const DoctorCheck& check : checks) {
    const bool is_ok = check.state == CheckState::kOk;
    text += (is_ok ? "ok       " : "missing  ") + check.name +
            std::string(width - display_width(check.name) + 2, ' ') + check.found + "\n";
    if (!check.fix.empty()) text += std::string(width + 11, ' ') + "fix: " + check.fix + "\n";
  }
  return text + (count == 0 ? "Nothing is missing.\n"
                            : str_format("%zu missing; all of it is optional.\n", count));
}

}  // namespace triptych
