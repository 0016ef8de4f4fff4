// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Adapters to engines of other projects, which the program carries in itself.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace triptych {

/// Text of a built-in adapter, a Python program; nothing for an unknown name.
[[nodiscard]] std::optional<std::string_view> adapter_text(std::string_view name);
[[nodiscard]] std::vector<std::string> adapter_names();

/// The interpreter of adapters: TRIPTYCH_PYTHON, or "python3".
[[nodiscard]] std::string adapter_python();

/// A built-in adapter as a file in a folder of its own, gone with this object: a binary that was
/// copied elsewhere needs no files beside it.
class AdapterFile {
 public:
  /// Errors: kIo. Precondition: `name` is an adapter's.
  [[nodiscard]] static Result<std::shared_ptr<const AdapterFile>> write(std::string_view name);
  explicit AdapterFile(std::filesystem::path folder) : folder_(std::move(folder)) {}
  ~AdapterFile();
  AdapterFile(const AdapterFile&) = delete;
  AdapterFile& operator=(const AdapterFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path folder_;
  std::filesystem::path path_;
};

}  // namespace triptych
