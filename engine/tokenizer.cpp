// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// BPE: added tokens, then normalization, then pieces, then merges in each piece.
#include "engine/tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "engine/added_tokens.h"
#include "engine/bpe_model.h"
#include "engine/bpe_tables.h"
#include "engine/byte_alphabet.h"
#include "engine/normalizer.h"
#include "engine/pre_tokenizer.h"

namespace triptych {
namespace {

/// The byte that "<0x0A>" stands for.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const size_t digit = std::string_view("0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<int>(digit);
  }
  return static_cast<char>(value);
}

class BpeTokenizer final : public Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> make(BpeTables tables);

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const int32_t> tokens) const override;
  [[nodiscard]] std::string decode_more(std::span<const int32_t> tokens) const override;
  [[nodiscard]] int64_t vocab_size() const override { return std::ssize(bytes_); }
  [[nodiscard]] std::span<const int32_t> prefix() const override { return prefix_; }
  [[nodiscard]] std::span<const int32_t> suffix() const override { return suffix_; }

 private:
  Status check_tables(const BpeTables& tables) const;
  void add_added_tokens(const BpeTables& tables);
  void add_bytes(const BpeTables& tables);
  [[nodiscard]] std::string token_bytes(const std::string& token) const;
  void encode_text(std::string_view text, bool at_start, BpeModel::Scratch& scratch,
                   std::vector<int32_t>& out) const;
  void encode_normalized(std::string_view text, bool at_start, BpeModel::Scratch& scratch,
                         std::vector<int32_t>& out) const;

  AddedTokenMatcher raw_tokens_;
  AddedTokenMatcher normalized_tokens_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  BpeAlphabet alphabet_ = BpeAlphabet::kBytes;
  DecoderRules decoder_;
  std::vector<std::string> bytes_;        ///< id -> the bytes that the token stands for.
  std::vector<std::string> first_bytes_;  ///< The same at the start; empty if it is no different.
  std::vector<int32_t> prefix_;
  std::vector<int32_t> suffix_;
};

Status BpeTokenizer::check_tables(const BpeTables& tables) const {
  const auto check = [&](const char* what, int32_t id) -> Status {
    const bool known = id >= 0 && static_cast<size_t>(id) < tables.tokens.size() &&
                       !tables.tokens[static_cast<size_t>(id)].empty();
    if (known) return {};
    return fail(
        ErrorCode::kCorrupt,
        str_format("%s token %d is not among the %zu tokens", what, id, tables.tokens.size()),
        tables.where);
  };
  for (const AddedToken& token : tables.added_tokens) {
    TRIPTYCH_RETURN_IF_ERROR(check("special", token.id));
    // A part of a character would be cut out of it and leave the rest behind.
    if (is_valid_utf8(tables.tokens[static_cast<size_t>(token.id)])) continue;
    return fail(ErrorCode::kCorrupt, str_format("special token %d is not UTF-8 text", token.id),
                tables.where);
  }
  size_t growth = 1;
  for (const auto& [pattern, content] : tables.decoder.replacements) {
    if (pattern.empty()) continue;  // replaces nothing
    TRIPTYCH_RETURN_IF_ERROR(check_growth(growth, pattern.size(), content, tables.where));
  }
  for (const int32_t id : tables.prefix) TRIPTYCH_RETURN_IF_ERROR(check("leading", id));
  for (const int32_t id : tables.suffix) TRIPTYCH_RETURN_IF_ERROR(check("trailing", id));
  return {};
}

void BpeTokenizer::add_added_tokens(const BpeTables& tables) {
  std::vector<bool> seen(tables.tokens.size());
  for (const AddedToken& token : tables.added_tokens) {
    if (seen[static_cast<size_t>(token.id)]) continue;
    seen[static_cast<size_t>(token.id)] = true;
    const std::string& text = tables.tokens[static_cast<size_t>(token.id)];
    if (!token.normalized) {
      raw_tokens_.add(text, token);
    } else if (std::string normalized = normalizer_.apply(text); !normalized.empty()) {
      normalized_tokens_.add(std::move(normalized), token);
    }
  }
}

std::string BpeTokenizer::token_bytes(const std::string& token) const {
  if (alphabet_ == BpeAlphabet::kBytes) return decode_alphabet(token).value_or(token);
  std::string text = token;
  for (const auto& [pattern, content] : decoder_.replacements) {
    text = replace_all(text, pattern, content);
  }
  if (decoder_.byte_fallback) {
    if (const auto byte = fallback_byte(text)) text.assign(1, *byte);
  }
  return text;
}

void BpeTokenizer::add_bytes(const BpeTables& tables) {
  const std::string& dropped = decoder_.drop_from_first;
  for (const std::string& token : tables.tokens) {
    bytes_.push_back(token_bytes(token));
    if (!dropped.empty()) first_bytes_.push_back(token_bytes(replace_all(token, dropped, "")));
  }
  for (const AddedToken& added : tables.added_tokens) {
    const auto id = static_cast<size_t>(added.id);
    const std::string& text = tables.tokens[id];
    // Like the text around it, a normalized token comes back in its normalized form.
    const std::string shown = added.normalized ? normalizer_.apply(text) : text;
    // In a byte-level vocabulary added tokens stand for themselves.
    bytes_[id] = alphabet_ == BpeAlphabet::kBytes ? shown : token_bytes(shown);
  }
}

Result<std::shared_ptr<const Tokenizer>> BpeTokenizer::make(BpeTables tables) {
  auto tokenizer = std::make_shared<BpeTokenizer>();
  TRIPTYCH_RETURN_IF_ERROR(tokenizer->check_tables(tables));
  TRIPTYCH_RETURN_IF_ERROR(tokenizer->model_.build(tables));
  TRIPTYCH_TRY(tokenizer->normalizer_, Normalizer::make(tables.normalizer, tables.where));
  TRIPTYCH_TRY(tokenizer->pre_tokenizer_, PreTokenizer::make(tables.pre_tokenizer, tables.where));
  tokenizer->alphabet_ = tables.alphabet;
  tokenizer->decoder_ = std::move(tables.decoder);
  tokenizer->add_added_tokens(tables);
  tokenizer->add_bytes(tables);
  tokenizer->prefix_ = std::move(tables.prefix);
  tokenizer->suffix_ = std::move(tables.suffix);
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::string clean;
  if (!is_valid_utf8(text)) {
    clean = replace_invalid_utf8(text);
    text = clean;
  }
  BpeModel::Scratch scratch;
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 3);
  for (const TextPart& part : raw_tokens_.cut(text)) {
    if (part.token) {
      tokens.push_back(*part.token);
    } else {
      encode_text(text.substr(part.begin, part.end - part.begin), part.begin == 0, scratch, tokens);
    }
  }
  return tokens;
}

void BpeTokenizer::encode_text(std::string_view text, bool at_start, BpeModel::Scratch& scratch,
                               std::vector<int32_t>& out) const {
  if (normalizer_.empty()) return encode_normalized(text, at_start, scratch, out);
  encode_normalized(normalizer_.apply(std::string(text)), at_start, scratch, out);
}

void BpeTokenizer::encode_normalized(std::string_view text, bool at_start,
                                     BpeModel::Scratch& scratch, std::vector<int32_t>& out) const {
  for (const TextPart& part : normalized_tokens_.cut(text)) {
    if (part.token) {
      out.push_back(*part.token);
      continue;
    }
    const Pieces pieces = pre_tokenizer_.cut(text.substr(part.begin, part.end - part.begin),
                                             at_start && part.begin == 0);
    for (const Pieces::Piece& piece : pieces.list) model_.encode(piece.text, scratch, out);
  }
}

std::string BpeTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  if (!first_bytes_.empty() && !tokens.empty()) {
    const int32_t id = tokens.front();
    if (id >= 0 && id < std::ssize(first_bytes_)) text = first_bytes_[static_cast<size_t>(id)];
    return text + decode_more(tokens.subspan(1));
  }
  text = decode_more(tokens);
  const size_t spaces = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(std::min(spaces, static_cast<size_t>(decoder_.strip_start)));
}

std::string BpeTokenizer::decode_more(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t id : tokens) {
    if (id >= 0 && id < std::ssize(bytes_)) text += bytes_[static_cast<size_t>(id)];
  }
  return text;
}

}  // namespace

std::vector<int32_t> Tokenizer::encode_with_special_tokens(std::string_view text) const {
  std::vector<int32_t> tokens(prefix().begin(), prefix().end());
  const std::vector<int32_t> body = encode(text);
  tokens.insert(tokens.end(), body.begin(), body.end());
  tokens.insert(tokens.end(), suffix().begin(), suffix().end());
  return tokens;
}

Result<std::shared_ptr<const Tokenizer>> make_bpe_tokenizer(BpeTables tables) {
  return BpeTokenizer::make(std::move(tables));
}

}  // namespace triptych
