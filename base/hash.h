// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Content hashes (XXH3, 128 bits): cells, files and binaries are identified by what they hold.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace triptych {

/// 32 lower-case hex digits of XXH3-128.
[[nodiscard]] std::string content_hash(std::span<const std::byte> bytes);
[[nodiscard]] std::string content_hash(std::string_view text);
/// Hash of a file's bytes. Errors: kNotFound, kIo.
[[nodiscard]] Result<std::string> file_hash(const std::filesystem::path& path);

}  // namespace triptych
