// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "engine/bpe_tables.h"
#include "engine/split_patterns.h"

namespace triptych {
namespace {

// Values of tokenizer.ggml.token_type that are matched as they stand.
constexpr int64_t kUnknown = 2;
constexpr int64_t kControl = 3;
constexpr int64_t kUserDefined = 4;

struct PreTokenizer {
  std::string_view name;  ///< tokenizer.ggml.pre
  std::string_view pattern;
  bool split_digits;
  bool ignore_merges;
};
constexpr std::array<PreTokenizer, 6> kPreTokenizers = {{
    {"smollm", kGpt2Pattern, true, false},
    {"gpt-2", kGpt2Pattern, false, false},
    {"llama-bpe", kLlama3Pattern, false, true},
    {"llama3", kLlama3Pattern, false, true},
    {"llama-v3", kLlama3Pattern, false, true},
    {"qwen2", kQwen2Pattern, false, false},
}};

Unexpected not_one_of(const Gguf& file, const char* key, std::string_view found,
                      const std::string& expected) {
  return fail(
      ErrorCode::kUnsupported,
      std::string("\"") + key + "\" is \"" + std::string(found) + "\", expected " + expected,
      file.where());
}

Unexpected missing(const Gguf& file, std::string_view key) {
  return fail(ErrorCode::kCorrupt, "key \"" + std::string(key) + "\" is missing", file.where());
}

Unexpected wrong_count(const Gguf& file, const char* key, size_t entries, size_t tokens) {
  return fail(ErrorCode::kCorrupt,
              str_format("\"%s\" has %zu entries, expected one for each of %zu tokens", key,
                         entries, tokens),
              file.where());
}

Status read_tokens(const Gguf& file, int64_t vocab_size, BpeTables& tables) {
  TRIPTYCH_TRY(const auto tokens, file.strings("tokenizer.ggml.tokens"));
  if (!tokens) return missing(file, "tokenizer.ggml.tokens");
  if (static_cast<int64_t>(tokens->size()) > vocab_size) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"tokenizer.ggml.tokens\" has %zu tokens, the embedding has %lld rows",
                           tokens->size(), static_cast<long long>(vocab_size)),
                file.where());
  }
  tables.tokens.assign(tokens->begin(), tokens->end());
  return {};
}

/// Tokens whose type is one of `matched` are cut out of the text.
Status read_added_tokens(const Gguf& file, std::initializer_list<int64_t> matched,
                         BpeTables& tables) {
  TRIPTYCH_TRY(const auto types, file.integers("tokenizer.ggml.token_type"));
  if (!types) return {};
  if (types->size() != tables.tokens.size()) {
    return wrong_count(file, "tokenizer.ggml.token_type", types->size(), tables.tokens.size());
  }
  for (size_t id = 0; id < types->size(); ++id) {
    if (std::find(matched.begin(), matched.end(), (*types)[id]) != matched.end()) {
      tables.added_tokens.push_back({.id = static_cast<int32_t>(id)});
    }
  }
  return {};
}

/// What the file says about BOS or EOS; `added` and `id` are what its absence means.
Status read_boundary(const Gguf& file, const char* name, bool added, std::optional<int64_t> id,
                     std::vector<int32_t>& out) {
  const std::string flag_key = std::string("tokenizer.ggml.add_") + name + "_token";
  const std::string id_key = std::string("tokenizer.ggml.") + name + "_token_id";
  TRIPTYCH_TRY(const auto flag, file.boolean(flag_key));
  TRIPTYCH_TRY(const auto given, file.integer(id_key));
  if (!flag.value_or(added)) return {};
  if (!given && !id) return missing(file, id_key);
  const int64_t token = given.value_or(id.value_or(0));
  if (token < 0 || token > INT32_MAX) {
    return fail(ErrorCode::kCorrupt,
                "\"" + id_key + "\" is " + std::to_string(token) + ", expected the id of a token",
                file.where());
  }
  out.push_back(static_cast<int32_t>(token));
  return {};
}

Status read_byte_level(const Gguf& file, BpeTables& tables) {
  TRIPTYCH_TRY(const auto pre, file.string("tokenizer.ggml.pre"));
  const auto* known =
      std::find_if(kPreTokenizers.begin(), kPreTokenizers.end(),
                   [&](const PreTokenizer& p) { return p.name == pre.value_or(""); });
  if (known == kPreTokenizers.end()) {
    std::vector<std::string> names;
    for (const PreTokenizer& each : kPreTokenizers) names.emplace_back(each.name);
    return not_one_of(file, "tokenizer.ggml.pre", pre.value_or(""), join(names, ", "));
  }
  TRIPTYCH_TRY(const auto merges, file.strings("tokenizer.ggml.merges"));
  if (!merges) return missing(file, "tokenizer.ggml.merges");
  for (const std::string_view merge : *merges) {
    const size_t space = std::min(merge.find(' '), merge.size());
    tables.merges.emplace_back(merge.substr(0, space),
                               merge.substr(std::min(space + 1, merge.size())));
  }
  TRIPTYCH_RETURN_IF_ERROR(read_added_tokens(file, {kControl, kUserDefined}, tables));
  // The file names no normalizer: one that its tokenizer.json has (NFC for Qwen) is not applied,
  // as llama.cpp does not.
  tables.alphabet = BpeAlphabet::kBytes;
  if (known->split_digits) tables.pre_tokenizer.push_back({.pattern = std::string(kDigitPattern)});
  tables.pre_tokenizer.push_back({.pattern = std::string(known->pattern)});
  tables.ignore_merges = known->ignore_merges;
  TRIPTYCH_RETURN_IF_ERROR(read_boundary(file, "bos", false, std::nullopt, tables.prefix));
  return read_boundary(file, "eos", false, std::nullopt, tables.suffix);
}

/// SentencePiece: scores in place of merges, U+2581 in place of spaces. Absent keys mean what
/// llama.cpp takes them to mean.
Status read_sentencepiece(const Gguf& file, BpeTables& tables) {
  TRIPTYCH_TRY(auto scores, file.numbers("tokenizer.ggml.scores"));
  if (!scores) return missing(file, "tokenizer.ggml.scores");
  if (scores->size() != tables.tokens.size()) {
    return wrong_count(file, "tokenizer.ggml.scores", scores->size(), tables.tokens.size());
  }
  constexpr const char* kExtraSpaces = "tokenizer.ggml.remove_extra_whitespaces";
  TRIPTYCH_TRY(const auto remove_spaces, file.boolean(kExtraSpaces));
  if (remove_spaces.value_or(false)) return not_one_of(file, kExtraSpaces, "true", "false");
  TRIPTYCH_RETURN_IF_ERROR(read_added_tokens(file, {kUnknown, kControl, kUserDefined}, tables));
  tables.alphabet = BpeAlphabet::kCharacters;
  tables.scores = *std::move(scores);
  tables.byte_fallback = true;
  TRIPTYCH_TRY(const auto unknown, file.integer("tokenizer.ggml.unknown_token_id"));
  const int64_t unknown_id = unknown.value_or(0);
  if (unknown_id < 0 || unknown_id >= std::ssize(tables.tokens)) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"tokenizer.ggml.unknown_token_id\" is %lld, expected 0 to %zu",
                           static_cast<long long>(unknown_id), tables.tokens.size()),
                file.where());
  }
  tables.unknown_id = static_cast<int32_t>(unknown_id);

  const std::string space = "\u2581";
  TRIPTYCH_TRY(const auto space_prefix, file.boolean("tokenizer.ggml.add_space_prefix"));
  using Kind = NormalizerStep::Kind;
  if (space_prefix.value_or(true)) {
    tables.normalizer.push_back({.kind = Kind::kPrepend, .content = space});
    tables.decoder.strip_start = 1;
  }
  tables.normalizer.push_back({.kind = Kind::kReplace, .pattern = " ", .content = space});
  tables.decoder.replacements = {{space, " "}};
  tables.decoder.byte_fallback = true;
  TRIPTYCH_RETURN_IF_ERROR(read_boundary(file, "bos", true, 1, tables.prefix));
  return read_boundary(file, "eos", false, 2, tables.suffix);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_gguf_tokenizer(const Gguf& file, int64_t vocab_size) {
  TRIPTYCH_TRY(const auto model, file.string("tokenizer.ggml.model"));
  if (!model || *model == "none") return std::shared_ptr<const Tokenizer>();
  const bool byte_level = *model == "gpt2";
  if (!byte_level && *model != "llama") {
    return not_one_of(file, "tokenizer.ggml.model", *model,
                      "gpt2 (byte-level BPE) or llama (SentencePiece BPE)");
  }
  BpeTables tables;
  tables.where = file.where();
  TRIPTYCH_RETURN_IF_ERROR(read_tokens(file, vocab_size, tables));
  TRIPTYCH_RETURN_IF_ERROR(byte_level ? read_byte_level(file, tables)
                                      : read_sentencepiece(file, tables));
  return make_bpe_tokenizer(std::move(tables));
}

}  // namespace triptych
