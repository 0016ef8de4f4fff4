// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Unicode: normalization forms and the few properties that tokenizers ask for, on UTF-8 text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace triptych {

/// Normalization forms of Unicode Standard Annex 15.
enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// `text` in the form `form`. Precondition: `text` is UTF-8.
[[nodiscard]] std::string normalize_unicode(std::string_view text, UnicodeForm form);

struct CodePoint {
  char32_t value;
  size_t length;  ///< Bytes of its UTF-8 form, 1 to 4.
};
/// The code point at the start of `text`. Precondition: `text` is UTF-8 and not empty.
[[nodiscard]] CodePoint first_code_point(std::string_view text);
/// The code point at the end of `text`. Precondition: as first_code_point().
[[nodiscard]] CodePoint last_code_point(std::string_view text);
/// UTF-8 of one code point. Precondition: no surrogate, at most U+10FFFF.
[[nodiscard]] std::string encode_code_point(char32_t point);

/// The property White_Space: `\s` of the regular expressions of Rust and Oniguruma.
[[nodiscard]] bool is_white_space(char32_t point);
/// A letter, mark, digit, letter number, connector or joiner: `\w` in Annex C of Unicode Technical
/// Standard 18.
[[nodiscard]] bool is_word_character(char32_t point);

}  // namespace triptych
