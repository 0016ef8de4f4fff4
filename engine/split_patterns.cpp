// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/split_patterns.h"

namespace triptych {
namespace {

/// Members of a class. PCRE2 also counts U+180E as white space, and leaves marks out of words.
constexpr std::string_view kWhiteSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})";

/// `\s` and `\w` spelled out. `\S` and `\W` inside a class cannot be spelled out and stay.
std::string spell_out_classes(std::string_view pattern) {
  std::string text;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      text += c;
      continue;
    }
    const char escaped = pattern[++i];
    const std::string members(escaped == 's' || escaped == 'S' ? kWhiteSpace : kWord);
    if (escaped == 's' || escaped == 'w') {
      text += in_class ? members : "[" + members + "]";
    } else if ((escaped == 'S' || escaped == 'W') && !in_class) {
      text += "[^" + members + "]";
    } else {
      text += {c, escaped};
    }
  }
  return text;
}

}  // namespace

Result<Regex> compile_tokenizer_pattern(std::string_view pattern, const std::string& where) {
  auto regex = Regex::compile(spell_out_classes(pattern));
  if (regex) return regex;
  return fail(regex.error().code, "\"" + std::string(pattern) + "\": " + regex.error().message,
              where);
}

}  // namespace triptych
