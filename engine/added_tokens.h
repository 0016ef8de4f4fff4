// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// AddedTokenMatcher: cuts tokens that are taken whole out of a text.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/bpe_tables.h"

namespace triptych {

/// A part of a text: an added token, or the text between two of them.
struct TextPart {
  size_t begin;
  size_t end;
  std::optional<int32_t> token;
};

/// Tokens by first byte, longest first: the leftmost longest match wins.
class AddedTokenMatcher {
 public:
  /// `text`, not empty, is what stands for the token. Of two equal texts the first stays.
  void add(std::string text, const AddedToken& token);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  /// The parts of `text`, UTF-8, in order; none but added tokens is empty. A token whose options
  /// do not allow a match there is text, up to the end of that match.
  [[nodiscard]] std::vector<TextPart> cut(std::string_view text) const;

 private:
  struct Entry {
    std::string text;
    AddedToken token;
  };
  [[nodiscard]] const Entry* longest_at(std::string_view text, size_t begin) const;

  std::array<std::vector<Entry>, 256> buckets_;
  size_t count_ = 0;
};

}  // namespace triptych
