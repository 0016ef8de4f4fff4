// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  /// The bytes of the tokens; ids out of range give nothing. May end inside a UTF-8 sequence.
  [[nodiscard]] virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  [[nodiscard]] virtual int64_t vocab_size() const = 0;
};

/// What a byte-level BPE tokenizer needs, whatever file it came from.
struct BpeTables {
  std::vector<std::string> tokens;          ///< id -> text in the byte-to-unicode alphabet.
  std::vector<std::string> merges;          ///< "left right", best first.
  std::vector<int32_t> special_ids;         ///< Matched verbatim before splitting.
  std::vector<std::string> split_patterns;  ///< Applied in order, each to every piece.
  bool split_digits = false;                ///< Every digit is a piece of its own, first.
  bool ignore_merges = false;               ///< A piece that is a token needs no merges.
  /// Pieces that do not start with a space get one before split_patterns[this] is applied.
  std::optional<size_t> prefix_space_before;
  /// Stands for a byte that has no token; without it such a byte is dropped.
  std::optional<int32_t> unknown_id;
  std::string where;  ///< File named in errors.
};

/// Errors: kCorrupt (duplicate token, merge without its parts, id out of range), kInvalidArgument
/// (bad pattern).
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> make_byte_level_bpe(BpeTables tables);
/// Reads `tokenizer.json` of the Hugging Face form (model BPE, byte-level). Errors: kNotFound, kIo;
/// kCorrupt naming the field; kUnsupported naming the component and what is supported.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> load_tokenizer_json(std::string_view path);

}  // namespace triptych
