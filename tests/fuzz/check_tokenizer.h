// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// check_tokenizer(): what holds for every tokenizer, whatever file it came from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/tokenizer.h"

namespace triptych {

/// Reaches letters, digits, spaces, line breaks, other scripts and bytes that are not UTF-8.
inline constexpr std::string_view kSampleText =
    "Hello  world, it's 2024!\n\n\tcaf\u00e9 na\u00efve \u4f60\u597d \U0001f600 e\u0301\xff<s></s>";

inline void check_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  for (const int32_t id : ids) {
    TRIPTYCH_CHECK(id >= 0 && id < tokenizer.vocab_size(), "a token outside the vocabulary");
  }
  const std::string decoded = tokenizer.decode(ids);
  // A server decodes token by token, and no cut may change the text. A text begins with its first
  // byte: tokens that are still none are decoded again with the next one.
  std::string streamed;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::span<const int32_t> all(ids);
    streamed += streamed.empty() ? tokenizer.decode(all.first(i + 1))
                                 : tokenizer.decode_more(all.subspan(i, 1));
  }
  TRIPTYCH_CHECK(streamed == decoded, "decoding in parts gives another text");
  TRIPTYCH_CHECK(tokenizer.encode(text) == ids, "encoding is not a function of the text");
  const std::vector<int32_t> outside = {-1, static_cast<int32_t>(tokenizer.vocab_size())};
  TRIPTYCH_CHECK(tokenizer.decode(outside).empty(), "an id out of range has text");
}

}  // namespace triptych
