// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "db/row_io.h"

#include <charconv>

namespace triptych::db {

std::string json_array(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (const int64_t value : values) {
    if (text.size() > 1) text += ',';
    text += std::to_string(value);
  }
  return text + "]";
}

Result<std::vector<int64_t>> parse_json_array(std::string_view text) {
  const auto bad = [text] {
    return fail(ErrorCode::kCorrupt,
                "expected a JSON array of integers, found \"" + std::string(text) + "\"");
  };
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return bad();
  std::vector<int64_t> values;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size() - 1;
  while (at != end) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next != end && *next != ',') || next + 1 == end) return bad();
    values.push_back(value);
    at = next == end ? end : next + 1;
  }
  return values;
}

}  // namespace triptych::db
