// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/unicode.h"

namespace triptych {
namespace {

bool is_inside_word(std::string_view before, std::string_view after) {
  return (!before.empty() && is_word_character(last_code_point(before).value)) ||
         (!after.empty() && is_word_character(first_code_point(after).value));
}

size_t white_space_at_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const CodePoint point = last_code_point(text.substr(0, end));
    if (!is_white_space(point.value)) break;
    end -= point.length;
  }
  return end;
}

size_t white_space_at_start(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size()) {
    const CodePoint point = first_code_point(text.substr(begin));
    if (!is_white_space(point.value)) break;
    begin += point.length;
  }
  return begin;
}

}  // namespace

void AddedTokenMatcher::add(std::string text, const AddedToken& token) {
  auto& bucket = buckets_[static_cast<uint8_t>(text[0])];
  const auto place = std::find_if(bucket.begin(), bucket.end(), [&](const Entry& other) {
    return other.text.size() < text.size();
  });
  bucket.insert(place, {std::move(text), token});
  ++count_;
}

const AddedTokenMatcher::Entry* AddedTokenMatcher::longest_at(std::string_view text,
                                                              size_t begin) const {
  for (const Entry& entry : buckets_[static_cast<uint8_t>(text[begin])]) {
    if (text.substr(begin, entry.text.size()) == entry.text) return &entry;
  }
  return nullptr;
}

std::vector<TextPart> AddedTokenMatcher::cut(std::string_view text) const {
  std::vector<TextPart> parts;
  size_t done = 0;  // up to here the text is in `parts`
  size_t at = 0;
  while (count_ > 0 && at < text.size()) {
    const Entry* entry = longest_at(text, at);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + entry->text.size();
    at = end;
    if (entry->token.single_word && is_inside_word(text.substr(0, begin), text.substr(end))) {
      continue;
    }
    if (entry->token.lstrip) begin = std::max(white_space_at_end(text.substr(0, begin)), done);
    if (entry->token.rstrip) end += white_space_at_start(text.substr(end));
    if (done < begin) parts.push_back({done, begin, std::nullopt});
    parts.push_back({begin, end, entry->token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), std::nullopt});
  return parts;
}

}  // namespace triptych
