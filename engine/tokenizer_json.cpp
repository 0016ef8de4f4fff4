// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// load_tokenizer_json: the model and vocabulary of Hugging Face's tokenizer.json.
#include <algorithm>
#include <array>
#include <utility>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "engine/bpe_tables.h"
#include "engine/json.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer_json_parts.h"

namespace triptych {
namespace {

Unexpected unsupported(const std::string& where, std::string message) {
  return fail(ErrorCode::kUnsupported, std::move(message), where);
}

class Reader {
 public:
  explicit Reader(std::string where) { tables_.where = std::move(where); }

  Result<BpeTables> read(const Json& root) {
    TRIPTYCH_RETURN_IF_ERROR(check_limits(root));
    TRIPTYCH_RETURN_IF_ERROR(read_normalizer(root, tables_));
    TRIPTYCH_RETURN_IF_ERROR(read_pre_tokenizer(root, tables_));
    TRIPTYCH_RETURN_IF_ERROR(read_decoder(root, tables_));
    TRIPTYCH_RETURN_IF_ERROR(read_post_processor(root, tables_));
    TRIPTYCH_TRY(const Json* model, json_member(root, "model", kObject, where()));
    if (model == nullptr) return fail(ErrorCode::kCorrupt, "\"model\" is missing", where());
    TRIPTYCH_RETURN_IF_ERROR(check_model(*model));
    TRIPTYCH_RETURN_IF_ERROR(add_vocabulary(root, *model));
    TRIPTYCH_RETURN_IF_ERROR(add_unknown_token(*model));
    TRIPTYCH_RETURN_IF_ERROR(add_merges(*model));
    return std::move(tables_);
  }

 private:
  static constexpr auto kObject = Json::value_t::object;
  static constexpr auto kArray = Json::value_t::array;

  [[nodiscard]] const std::string& where() const { return tables_.where; }

  Status check_limits(const Json& root) const;
  Status check_model(const Json& model);
  Status add_vocabulary(const Json& root, const Json& model);
  Status add_added_token(const Json& added, size_t most_tokens);
  Status add_token(const std::string& text, int64_t id, size_t most_tokens);
  Status add_unknown_token(const Json& model);
  Status add_merges(const Json& model);

  BpeTables tables_;
};

/// A text is encoded whole: a file that cuts or fills it would mean other ids.
Status Reader::check_limits(const Json& root) const {
  for (const char* key : {"truncation", "padding"}) {
    TRIPTYCH_TRY(const Json* limit, json_member(root, key, kObject, where()));
    if (limit == nullptr) continue;
    return unsupported(where(),
                       std::string("\"") + key + "\" is " + limit->dump() + ", expected null");
  }
  return {};
}

Status Reader::check_model(const Json& model) {
  TRIPTYCH_TRY(const auto type, json_string(model, "type", where()));
  // Files of old versions leave the type out.
  if (type && *type != "BPE") return unsupported(where(), "model \"" + *type + "\", expected BPE");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    TRIPTYCH_TRY(const auto affix, json_string(model, key, where()));
    if (!affix || affix->empty()) continue;
    return unsupported(where(),
                       std::string("\"") + key + "\" is \"" + *affix + "\", expected none");
  }
  TRIPTYCH_TRY(const auto dropout, json_number(model, "dropout", where()));
  if (dropout && *dropout > 0.0) {
    return unsupported(where(), str_format("\"dropout\" is %g, expected none", *dropout));
  }
  TRIPTYCH_TRY(const auto fuse, json_boolean(model, "fuse_unk", where()));
  tables_.fuse_unknown = fuse.value_or(false);
  TRIPTYCH_TRY(const auto fallback, json_boolean(model, "byte_fallback", where()));
  tables_.byte_fallback = fallback.value_or(false);
  if (tables_.byte_fallback && tables_.alphabet == BpeAlphabet::kBytes) {
    return unsupported(where(), "\"byte_fallback\" is true in a byte-level vocabulary");
  }
  TRIPTYCH_TRY(const auto ignore_merges, json_boolean(model, "ignore_merges", where()));
  tables_.ignore_merges = ignore_merges.value_or(false);
  return {};
}

Status Reader::add_vocabulary(const Json& root, const Json& model) {
  TRIPTYCH_TRY(const Json* vocab, json_member(model, "vocab", kObject, where()));
  if (vocab == nullptr) return fail(ErrorCode::kCorrupt, "\"model.vocab\" is missing", where());
  TRIPTYCH_TRY(const Json* added, json_member(root, "added_tokens", kArray, where()));
  const size_t entries = vocab->size() + (added != nullptr ? added->size() : 0);
  // Ids may have holes; the bound keeps one wrong id from asking for gigabytes.
  const size_t most_tokens = 4 * entries + 1024;
  for (const auto& [text, id] : vocab->items()) {
    if (!id.is_number_integer()) {
      return fail(ErrorCode::kCorrupt, "the id of token \"" + text + "\" is no integer", where());
    }
    TRIPTYCH_RETURN_IF_ERROR(add_token(text, id.get<int64_t>(), most_tokens));
  }
  if (added == nullptr) return {};
  for (const Json& token : *added) {
    TRIPTYCH_RETURN_IF_ERROR(add_added_token(token, most_tokens));
  }
  return {};
}

Status Reader::add_token(const std::string& text, int64_t id, size_t most_tokens) {
  if (text.empty()) {
    return fail(ErrorCode::kCorrupt, "the token with id " + std::to_string(id) + " is empty",
                where());
  }
  if (id < 0 || static_cast<uint64_t>(id) >= most_tokens) {
    return fail(ErrorCode::kCorrupt,
                "token \"" + text + "\" has id " + std::to_string(id) + ", expected 0 to " +
                    std::to_string(most_tokens - 1),
                where());
  }
  const auto index = static_cast<size_t>(id);
  if (index >= tables_.tokens.size()) tables_.tokens.resize(index + 1);
  std::string& place = tables_.tokens[index];
  if (!place.empty() && place != text) {
    return fail(ErrorCode::kCorrupt,
                "tokens \"" + place + "\" and \"" + text + "\" share the id " + std::to_string(id),
                where());
  }
  place = text;
  return {};
}

Status Reader::add_added_token(const Json& added, size_t most_tokens) {
  TRIPTYCH_TRY(const auto id, json_integer(added, "id", where()));
  TRIPTYCH_TRY(const auto content, json_string(added, "content", where()));
  if (!id || !content) {
    return fail(ErrorCode::kCorrupt, "an added token without \"id\" or \"content\"", where());
  }
  AddedToken token{.id = 0};
  TRIPTYCH_TRY(const auto special, json_boolean(added, "special", where()));
  TRIPTYCH_TRY(const auto normalized, json_boolean(added, "normalized", where()));
  // Absent means what `tokenizers` has as its default.
  token.normalized = normalized.value_or(!special.value_or(false));
  const std::array<std::pair<const char*, bool*>, 3> flags = {
      {{"lstrip", &token.lstrip}, {"rstrip", &token.rstrip}, {"single_word", &token.single_word}}};
  for (const auto& [key, place] : flags) {
    TRIPTYCH_TRY(const auto flag, json_boolean(added, key, where()));
    *place = flag.value_or(false);
  }
  const size_t index = static_cast<size_t>(std::max<int64_t>(*id, 0));
  token.in_model = index < tables_.tokens.size() && tables_.tokens[index] == *content;
  TRIPTYCH_RETURN_IF_ERROR(add_token(*content, *id, most_tokens));
  // Added tokens are matched as they stand, whether or not they are special; `special` only says
  // whether a decoder may leave them out.
  token.id = static_cast<int32_t>(*id);
  tables_.added_tokens.push_back(token);
  return {};
}

Status Reader::add_unknown_token(const Json& model) {
  TRIPTYCH_TRY(const auto unknown, json_string(model, "unk_token", where()));
  if (!unknown) return {};
  const auto found = std::find(tables_.tokens.begin(), tables_.tokens.end(), *unknown);
  if (found == tables_.tokens.end()) {
    return fail(ErrorCode::kCorrupt, "\"unk_token\" \"" + *unknown + "\" is not in the vocabulary",
                where());
  }
  tables_.unknown_id = static_cast<int32_t>(found - tables_.tokens.begin());
  return {};
}

Status Reader::add_merges(const Json& model) {
  TRIPTYCH_TRY(const Json* merges, json_member(model, "merges", kArray, where()));
  if (merges == nullptr) return fail(ErrorCode::kCorrupt, "\"model.merges\" is missing", where());
  tables_.merges.reserve(merges->size());
  for (const Json& merge : *merges) {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = std::min(text.find(' '), text.size());
      tables_.merges.emplace_back(text.substr(0, space),
                                  text.substr(std::min(space + 1, text.size())));
      continue;
    }
    const bool pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!pair) {
      return fail(ErrorCode::kCorrupt,
                  "merge " + std::to_string(tables_.merges.size()) +
                      " is neither \"left right\" nor [\"left\", \"right\"]",
                  where());
    }
    tables_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer_json(std::string_view path) {
  TRIPTYCH_TRY(const auto file, MappedFile::open(path));
  const std::string where(path);
  TRIPTYCH_TRY(const Json root, parse_json_object(file.text(), where));
  TRIPTYCH_TRY(auto tables, Reader(where).read(root));
  return make_bpe_tokenizer(std::move(tables));
}

}  // namespace triptych
