// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "engine/split_patterns.h"

namespace triptych {
namespace {

// Values of tokenizer.ggml.token_type that are matched as they stand.
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

std::vector<std::string> owned(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_gguf_tokenizer(const Gguf& file, int64_t vocab_size) {
  TRIPTYCH_TRY(const auto model, file.string("tokenizer.ggml.model"));
  if (!model || *model == "none") return std::shared_ptr<const Tokenizer>();
  if (*model != "gpt2") {
    return not_one_of(file, "tokenizer.ggml.model", *model, "gpt2 (byte-level BPE)");
  }
  TRIPTYCH_TRY(const auto pre, file.string("tokenizer.ggml.pre"));
  const auto* known =
      std::find_if(kPreTokenizers.begin(), kPreTokenizers.end(),
                   [&](const PreTokenizer& p) { return p.name == pre.value_or(""); });
  if (known == kPreTokenizers.end()) {
    std::vector<std::string> names;
    for (const PreTokenizer& each : kPreTokenizers) names.emplace_back(each.name);
    return not_one_of(file, "tokenizer.ggml.pre", pre.value_or(""), join(names, ", "));
  }

  TRIPTYCH_TRY(const auto tokens, file.strings("tokenizer.ggml.tokens"));
  TRIPTYCH_TRY(const auto merges, file.strings("tokenizer.ggml.merges"));
  TRIPTYCH_TRY(const auto types, file.integers("tokenizer.ggml.token_type"));
  if (!tokens || !merges) {
    return fail(
        ErrorCode::kCorrupt,
        std::string("key \"tokenizer.ggml.") + (tokens ? "merges" : "tokens") + "\" is missing",
        file.where());
  }
  if (static_cast<int64_t>(tokens->size()) > vocab_size) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"tokenizer.ggml.tokens\" has %zu tokens, the embedding has %lld rows",
                           tokens->size(), static_cast<long long>(vocab_size)),
                file.where());
  }
  if (types && types->size() != tokens->size()) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"tokenizer.ggml.token_type\" has %zu entries, expected one for each "
                           "of %zu tokens",
                           types->size(), tokens->size()),
                file.where());
  }

  BpeTables tables;
  tables.tokens = owned(*tokens);
  tables.merges = owned(*merges);
  for (size_t id = 0; types && id < types->size(); ++id) {
    if ((*types)[id] == kControl || (*types)[id] == kUserDefined) {
      tables.special_ids.push_back(static_cast<int32_t>(id));
    }
  }
  tables.split_patterns = {std::string(known->pattern)};
  tables.split_digits = known->split_digits;
  tables.ignore_merges = known->ignore_merges;
  tables.where = file.where();
  return make_byte_level_bpe(std::move(tables));
}

}  // namespace triptych
