// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// doctor: what this machine can do, what is missing, and the command that fixes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace triptych {

enum class CheckState : uint8_t {
  kOk,
  kMissing,  ///< Something that is optional is not there; `fix` says how to get it.
};

struct DoctorCheck {
  std::string name;  ///< "model"
  CheckState state = CheckState::kOk;
  std::string found;  ///< What there is, or what is missing and what it would be good for.
  std::string fix;    ///< A command; "" when nothing is missing.
};

/// Where doctor looks; tests give folders of their own.
struct DoctorPlaces {
  std::filesystem::path system_root = "/";
  std::filesystem::path project = ".";  ///< Folder of models/ and .venv/.
  std::string search_path;              ///< PATH; where nvcc is looked for.
};

/// Reads only; takes milliseconds.
[[nodiscard]] std::vector<DoctorCheck> run_doctor(const DoctorPlaces& places);
/// One line a check; fixes on lines of their own.
[[nodiscard]] std::string render_doctor(const std::vector<DoctorCheck>& checks);

}  // namespace triptych
