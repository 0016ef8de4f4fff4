// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// load_tokenizer_json: the byte-level BPE form of Hugging Face's tokenizer.json.
#include <algorithm>
#include <cctype>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "engine/json.h"
#include "engine/split_patterns.h"
#include "engine/tokenizer.h"

namespace triptych {
namespace {

Unexpected unsupported(const std::string& where, std::string message) {
  return fail(ErrorCode::kUnsupported, std::move(message), where);
}

Result<std::string> component_type(const Json& component, const char* role,
                                   const std::string& where) {
  TRIPTYCH_TRY(const auto type, json_string(component, "type", where));
  if (type) return *type;
  return fail(ErrorCode::kCorrupt, std::string("the ") + role + " has no \"type\"", where);
}

/// A pattern that matches `text` itself.
std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

class Reader {
 public:
  explicit Reader(std::string where) { tables_.where = std::move(where); }

  Result<BpeTables> read(const Json& root) {
    TRIPTYCH_RETURN_IF_ERROR(check_normalizer(root));
    TRIPTYCH_RETURN_IF_ERROR(check_decoder(root));
    TRIPTYCH_TRY(const Json* pre, json_member(root, "pre_tokenizer", kObject, where()));
    if (pre == nullptr) return unsupported(where(), "no pre_tokenizer, expected ByteLevel");
    TRIPTYCH_RETURN_IF_ERROR(add_pre_tokenizer(*pre));
    if (!byte_level_) {
      return unsupported(where(),
                         "the pre_tokenizer has no ByteLevel: the vocabulary is not "
                         "byte-level");
    }
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

  Status check_normalizer(const Json& root) const;
  Status check_decoder(const Json& root) const;
  Status check_model(const Json& model);
  Status add_pre_tokenizer(const Json& component);
  Status add_split(const Json& component);
  Status add_byte_level(const Json& component);
  Status add_vocabulary(const Json& root, const Json& model);
  Status add_added_token(const Json& added, size_t most_tokens);
  Status add_token(const std::string& text, int64_t id, size_t most_tokens);
  Status add_unknown_token(const Json& model);
  Status add_merges(const Json& model);

  BpeTables tables_;
  bool byte_level_ = false;
};

Status Reader::check_normalizer(const Json& root) const {
  TRIPTYCH_TRY(const Json* normalizer, json_member(root, "normalizer", kObject, where()));
  if (normalizer == nullptr) return {};
  TRIPTYCH_TRY(const auto type, component_type(*normalizer, "normalizer", where()));
  TRIPTYCH_TRY(const Json* parts, json_member(*normalizer, "normalizers", kArray, where()));
  if (type == "Sequence" && parts != nullptr && parts->empty()) return {};
  return unsupported(where(), "normalizer \"" + type + "\", expected null");
}

Status Reader::check_decoder(const Json& root) const {
  TRIPTYCH_TRY(const Json* decoder, json_member(root, "decoder", kObject, where()));
  if (decoder == nullptr) return unsupported(where(), "no decoder, expected ByteLevel");
  TRIPTYCH_TRY(const auto type, component_type(*decoder, "decoder", where()));
  if (type == "ByteLevel") return {};
  return unsupported(where(), "decoder \"" + type + "\", expected ByteLevel");
}

Status Reader::check_model(const Json& model) {
  TRIPTYCH_TRY(const auto type, json_string(model, "type", where()));
  // Files of old versions leave the type out.
  if (type && *type != "BPE") return unsupported(where(), "model \"" + *type + "\", expected BPE");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    TRIPTYCH_TRY(const auto affix, json_string(model, key, where()));
    if (!affix || affix->empty()) continue;
    return unsupported(where(), std::string("\"") + key + "\" is \"" + *affix +
                                    "\", expected none in a byte-level vocabulary");
  }
  TRIPTYCH_TRY(const auto dropout, json_number(model, "dropout", where()));
  if (dropout && *dropout > 0.0) {
    return unsupported(where(), str_format("\"dropout\" is %g, expected none", *dropout));
  }
  for (const char* key : {"fuse_unk", "byte_fallback"}) {
    TRIPTYCH_TRY(const auto flag, json_boolean(model, key, where()));
    if (flag.value_or(false)) {
      return unsupported(where(), std::string("\"") + key + "\" is true, expected false");
    }
  }
  TRIPTYCH_TRY(const auto ignore_merges, json_boolean(model, "ignore_merges", where()));
  tables_.ignore_merges = ignore_merges.value_or(false);
  return {};
}

Status Reader::add_pre_tokenizer(const Json& component) {
  TRIPTYCH_TRY(const auto type, component_type(component, "pre_tokenizer", where()));
  if (byte_level_) {
    return unsupported(where(), "pre_tokenizer \"" + type + "\" after ByteLevel");
  }
  if (type == "Sequence") {
    TRIPTYCH_TRY(const Json* parts, json_member(component, "pretokenizers", kArray, where()));
    if (parts == nullptr) {
      return fail(ErrorCode::kCorrupt, "the pre_tokenizer Sequence has no \"pretokenizers\"",
                  where());
    }
    for (const Json& part : *parts) {
      // The format does not nest sequences; refusing them bounds the recursion.
      TRIPTYCH_TRY(const auto part_type, component_type(part, "pre_tokenizer", where()));
      if (part_type == "Sequence") return unsupported(where(), "pre_tokenizer Sequence in another");
      TRIPTYCH_RETURN_IF_ERROR(add_pre_tokenizer(part));
    }
    return {};
  }
  if (type == "Split") return add_split(component);
  if (type == "ByteLevel") return add_byte_level(component);
  if (type == "Digits") {
    TRIPTYCH_TRY(const auto individual, json_boolean(component, "individual_digits", where()));
    tables_.split_patterns.emplace_back(individual.value_or(false) ? R"(\p{N})" : R"(\p{N}+)");
    return {};
  }
  return unsupported(
      where(), "pre_tokenizer \"" + type + "\", expected Sequence, Split, Digits or ByteLevel");
}

Status Reader::add_split(const Json& component) {
  TRIPTYCH_TRY(const auto behavior, json_string(component, "behavior", where()));
  // Isolated keeps matches and gaps alike, so that "invert" changes nothing.
  if (behavior.value_or("") != "Isolated") {
    return unsupported(where(), "pre_tokenizer Split with behavior \"" + behavior.value_or("") +
                                    "\", expected Isolated");
  }
  TRIPTYCH_TRY(const Json* pattern, json_member(component, "pattern", kObject, where()));
  if (pattern == nullptr) {
    return fail(ErrorCode::kCorrupt, "pre_tokenizer Split has no \"pattern\"", where());
  }
  TRIPTYCH_TRY(const auto regex, json_string(*pattern, "Regex", where()));
  TRIPTYCH_TRY(const auto literal, json_string(*pattern, "String", where()));
  if (!regex && !literal) {
    return fail(ErrorCode::kCorrupt,
                "the pattern of pre_tokenizer Split has neither \"Regex\" nor \"String\"", where());
  }
  tables_.split_patterns.push_back(regex ? *regex : literal_pattern(*literal));
  return {};
}

Status Reader::add_byte_level(const Json& component) {
  byte_level_ = true;
  // Absent members mean true: the defaults of `tokenizers`.
  TRIPTYCH_TRY(const auto prefix, json_boolean(component, "add_prefix_space", where()));
  TRIPTYCH_TRY(const auto use_regex, json_boolean(component, "use_regex", where()));
  if (prefix.value_or(true)) tables_.prefix_space_before = tables_.split_patterns.size();
  if (use_regex.value_or(true)) tables_.split_patterns.emplace_back(kGpt2Pattern);
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
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    TRIPTYCH_TRY(const auto flag, json_boolean(added, key, where()));
    if (!flag.value_or(false)) continue;
    return unsupported(
        where(), "added token \"" + *content + "\" has \"" + key + "\": true, expected false");
  }
  TRIPTYCH_RETURN_IF_ERROR(add_token(*content, *id, most_tokens));
  // Added tokens are matched as they stand, whether or not they are special; `special` only says
  // whether a decoder may leave them out.
  tables_.special_ids.push_back(static_cast<int32_t>(*id));
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
      tables_.merges.push_back(merge.get<std::string>());
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
    tables_.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer_json(std::string_view path) {
  TRIPTYCH_TRY(const auto file, MappedFile::open(path));
  const std::string where(path);
  TRIPTYCH_TRY(const Json root, parse_json_object(file.text(), where));
  TRIPTYCH_TRY(auto tables, Reader(where).read(root));
  return make_byte_level_bpe(std::move(tables));
}

}  // namespace triptych
