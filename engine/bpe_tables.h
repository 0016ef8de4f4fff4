// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// BpeTables: everything a BPE tokenizer needs, whatever file it came from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer.h"

namespace triptych {

/// What the vocabulary is written in.
enum class BpeAlphabet : uint8_t {
  kBytes,       ///< GPT-2's byte-to-unicode alphabet: one symbol a byte.
  kCharacters,  ///< Plain text, as SentencePiece has it: one symbol a code point.
};

/// A token that is cut out of the text before anything else. The options are those of
/// `added_tokens` in tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  bool normalized = false;   ///< Looked for in the normalized text, in its own normalized form.
  bool lstrip = false;       ///< Takes the white space before it along.
  bool rstrip = false;       ///< Takes the white space after it along.
  bool single_word = false;  ///< Not next to a letter or digit.
  bool in_model = true;      ///< Merges may make it, too.
};

/// One change of the text before it is cut into pieces.
struct NormalizerStep {
  enum class Kind : uint8_t { kNfc, kNfd, kNfkc, kNfkd, kPrepend, kReplace, kReplaceRegex };
  Kind kind = Kind::kNfc;
  std::string pattern{};  ///< What is replaced: text, or a regular expression.
  std::string content{};  ///< What takes its place, or is prepended to a text that is not empty.
};

/// One way to cut every piece into smaller ones.
struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kSplit,        ///< Matches of `pattern` and the gaps between them are pieces.
    kPrefixSpace,  ///< A piece that does not start with a space gets one.
    kMetaspace,    ///< Spaces become `pattern`; with `split` each piece starts at one.
  };
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };  ///< kFirst: at the text's start only.
  Kind kind = Kind::kSplit;
  std::string pattern{};
  Prepend prepend = Prepend::kNever;  ///< Of kMetaspace: pieces that get `pattern` in front.
  bool split = true;
};

/// From tokens back to text. A vocabulary of kBytes needs none of it.
struct DecoderRules {
  /// Literal text and what replaces it in each token.
  std::vector<std::pair<std::string, std::string>> replacements{};
  bool byte_fallback = false;  ///< "<0x0A>" is one byte.
  int64_t strip_start = 0;     ///< Most spaces taken off the start of the text.
  /// Taken out of the first token wherever it stands ("" = nothing): the Metaspace decoder.
  std::string drop_from_first{};
};

struct BpeTables {
  std::vector<std::string> tokens;  ///< id -> text in the alphabet; "" for an unused id.
  BpeAlphabet alphabet = BpeAlphabet::kBytes;
  std::vector<std::pair<std::string, std::string>> merges;  ///< Left and right part, best first.
  /// One a token, used where `merges` is empty: any two neighbours whose joined text is a token may
  /// merge, the highest score first (SentencePiece). The score of a tie does not order: the
  /// leftmost goes first.
  std::vector<double> scores;
  std::vector<AddedToken> added_tokens;  ///< The leftmost longest match wins.
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool ignore_merges = false;  ///< A piece that is a token needs no merges.
  bool byte_fallback = false;  ///< A character without a token becomes its bytes, "<0x0A>" each.
  bool fuse_unknown = false;   ///< Unknown neighbours are one token.
  /// Stands for a byte or character that has no token; without it such a one is dropped.
  std::optional<int32_t> unknown_id;
  std::vector<int32_t> prefix;  ///< Tokenizer::prefix().
  std::vector<int32_t> suffix;
  DecoderRules decoder;
  std::string where;  ///< File named in errors.
};

/// Errors: kCorrupt (duplicate token, merge without its parts, id out of range), kInvalidArgument
/// (bad pattern), kUnsupported (a scored token of more than 1024 bytes, replacements that let a
/// text grow without bound).
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> make_bpe_tokenizer(BpeTables tables);

}  // namespace triptych
