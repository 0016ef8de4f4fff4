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
  /// Special tokens in the text become their ids; no BOS or EOS is added. Bytes that are not UTF-8
  /// are encoded as the replacement character U+FFFD, as the `tokenizers` package does.
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The bytes of the tokens; ids out of range give nothing. May end inside a UTF-8 sequence.
  [[nodiscard]] virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  [[nodiscard]] virtual int64_t vocab_size() const = 0;
};

/// What a byte-level BPE tokenizer needs, whatever file it came from.
struct BpeTables {
  std::vector<std::string> tokens;              ///< id -> text in the byte-to-unicode alphabet.
  std::vector<std::string> merges;              ///< "left right", best first.
  std::vector<int32_t> special_ids;             ///< Matched verbatim before splitting.
  std::vector<std::string> split_patterns;      ///< Applied in order, each to every piece.
  bool split_digits = false;                    ///< Every digit is a piece of its own, first.
  std::string where;                            ///< File named in errors.
};

/// Errors: kCorrupt (duplicate token, merge without its parts), kInvalidArgument (bad pattern).
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> make_byte_level_bpe(BpeTables tables);
/// Reads `tokenizer.json` of the Hugging Face form (model BPE, byte-level).
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> load_tokenizer_json(std::string_view path);

}  // namespace triptych
