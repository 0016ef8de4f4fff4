// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4): numbers inside of JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

[[nodiscard]] std::string encode_base64(std::span<const std::byte> bytes);
/// Nothing for text of another alphabet, of a wrong length, or without its padding.
[[nodiscard]] std::optional<std::vector<std::byte>> decode_base64(std::string_view text);

}  // namespace triptych
