// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Text helpers shared by every reader and printer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

[[nodiscard]] std::string_view trim(std::string_view text);
/// Splits at each `separator`; "a,,b" has three parts and "" has one.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);

/// Number of edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
[[nodiscard]] int edit_distance(std::string_view a, std::string_view b);
/// The candidate nearest to `text`, or "" when none is within a third of its length (at least 2).
[[nodiscard]] std::string nearest(std::string_view text, std::span<const std::string> candidates);

/// printf into a std::string; for numbers, since GCC 12 has no std::format.
[[nodiscard]] std::string str_format(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// True if `text` is well-formed UTF-8 (no overlong forms, no surrogates).
[[nodiscard]] bool is_valid_utf8(std::string_view text);

}  // namespace triptych
