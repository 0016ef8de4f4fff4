// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace triptych {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Special tokens in the text become their ids; no BOS or EOS is added. Each maximal part of the
  /// text that is not UTF-8 is encoded as the replacement character U+FFFD, as Python's
  /// bytes.decode(errors="replace") does.
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The bytes of a text that starts with these tokens; ids out of range give nothing. May end
  /// inside a UTF-8 sequence.
  [[nodiscard]] virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  /// The bytes of tokens that follow others: decode(a + b) == decode(a) + decode_more(b) when
  /// decode(a) is not empty. Differs from decode() for tokenizers that put a space before the text.
  [[nodiscard]] virtual std::string decode_more(std::span<const int32_t> tokens) const {
    return decode(tokens);
  }
  [[nodiscard]] virtual int64_t vocab_size() const = 0;

  /// What the model expects before and after a text: BOS, EOS or nothing.
  [[nodiscard]] virtual std::span<const int32_t> prefix() const { return {}; }
  [[nodiscard]] virtual std::span<const int32_t> suffix() const { return {}; }
  /// prefix() + encode(text) + suffix().
  [[nodiscard]] std::vector<int32_t> encode_with_special_tokens(std::string_view text) const;
};

/// Reads `tokenizer.json` of the Hugging Face form: model BPE, byte-level or SentencePiece-style.
/// Errors: kNotFound, kIo; kCorrupt naming the field; kUnsupported naming the component and what is
/// supported.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> load_tokenizer_json(std::string_view path);

}  // namespace triptych
