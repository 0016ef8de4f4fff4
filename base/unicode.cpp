// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/check.h"

namespace triptych {
namespace {

utf8proc_option_t options_of(UnicodeForm form) {
  int options = UTF8PROC_STABLE;
  switch (form) {
    case UnicodeForm::kNfc:
      options |= UTF8PROC_COMPOSE;
      break;
    case UnicodeForm::kNfd:
      options |= UTF8PROC_DECOMPOSE;
      break;
    case UnicodeForm::kNfkc:
      options |= UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
      break;
    case UnicodeForm::kNfkd:
      options |= UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
      break;
  }
  return static_cast<utf8proc_option_t>(options);
}

}  // namespace

std::string normalize_unicode(std::string_view text, UnicodeForm form) {
  // All forms leave ASCII as it is, and most text is ASCII.
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return std::string(text);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  TRIPTYCH_CHECK(length >= 0, utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(length)};
}

CodePoint first_code_point(std::string_view text) {
  utf8proc_int32_t value = -1;
  const utf8proc_ssize_t length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &value);
  TRIPTYCH_CHECK(length > 0, "the text is UTF-8 and not empty");
  return {static_cast<char32_t>(value), static_cast<size_t>(length)};
}

CodePoint last_code_point(std::string_view text) {
  TRIPTYCH_CHECK(!text.empty(), "the text is not empty");
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return first_code_point(text.substr(begin));
}

std::string encode_code_point(char32_t point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(length)};
}

bool is_white_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
         point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_word_character(char32_t point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // Join_Control, and the symbols that Other_Alphabetic counts as letters (enclosed A to Z).
  return point == 0x200C || point == 0x200D || (point >= 0x24B6 && point <= 0x24E9) ||
         (point >= 0x1F130 && point <= 0x1F149) || (point >= 0x1F150 && point <= 0x1F169) ||
         (point >= 0x1F170 && point <= 0x1F189);
}

}  // namespace triptych
