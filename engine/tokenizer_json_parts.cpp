// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/tokenizer_json_parts.h"

#include <array>
#include <cctype>
#include <functional>
#include <utility>

#include "base/strings.h"
#include "base/unicode.h"
#include "engine/split_patterns.h"

namespace triptych {
namespace {

constexpr auto kObject = Json::value_t::object;
constexpr auto kArray = Json::value_t::array;

Unexpected unsupported(const std::string& where, std::string message) {
  return fail(ErrorCode::kUnsupported, std::move(message), where);
}
Unexpected corrupt(const std::string& where, std::string message) {
  return fail(ErrorCode::kCorrupt, std::move(message), where);
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

using Visitor = std::function<Status(const Json& part, const std::string& type)>;

/// Visits the member `role` of `root`, or the parts of the Sequence that it is, in order; nothing
/// if it is absent. `list` is the key of the parts.
Status for_each_component(const Json& root, const char* role, const char* list,
                          const std::string& where, const Visitor& visit) {
  TRIPTYCH_TRY(const Json* component, json_member(root, role, kObject, where));
  if (component == nullptr) return {};
  TRIPTYCH_TRY(const std::string type, component_type(*component, role, where));
  if (type != "Sequence") return visit(*component, type);
  TRIPTYCH_TRY(const Json* parts, json_member(*component, list, kArray, where));
  if (parts == nullptr) {
    return corrupt(where, std::string("the ") + role + " Sequence has no \"" + list + "\"");
  }
  for (const Json& part : *parts) {
    // The files in use do not nest sequences; refusing them bounds the recursion.
    TRIPTYCH_TRY(const std::string part_type, component_type(part, role, where));
    if (part_type == "Sequence") {
      return unsupported(where, std::string(role) + " Sequence in another");
    }
    TRIPTYCH_RETURN_IF_ERROR(visit(part, part_type));
  }
  return {};
}

/// A member that has to be there.
Result<std::string> text_member(const Json& part, const char* key, const std::string& what,
                                const std::string& where) {
  TRIPTYCH_TRY(auto text, json_string(part, key, where));
  if (!text) return corrupt(where, what + " has no \"" + key + "\"");
  return *std::move(text);
}

struct Pattern {
  std::string text;
  bool regex = false;
};
Result<Pattern> read_pattern(const Json& part, const std::string& what, const std::string& where) {
  TRIPTYCH_TRY(const Json* pattern, json_member(part, "pattern", kObject, where));
  if (pattern == nullptr) return corrupt(where, what + " has no \"pattern\"");
  TRIPTYCH_TRY(const auto regex, json_string(*pattern, "Regex", where));
  TRIPTYCH_TRY(const auto literal, json_string(*pattern, "String", where));
  if (regex) return Pattern{*regex, true};
  if (literal && !literal->empty()) return Pattern{*literal, false};
  return corrupt(where, "the pattern of " + what + " has neither \"Regex\" nor \"String\"");
}

Status add_normalizer(const Json& part, const std::string& type, BpeTables& tables) {
  using Kind = NormalizerStep::Kind;
  constexpr std::array<std::pair<std::string_view, Kind>, 4> kForms = {
      {{"NFC", Kind::kNfc}, {"NFD", Kind::kNfd}, {"NFKC", Kind::kNfkc}, {"NFKD", Kind::kNfkd}}};
  for (const auto& [name, kind] : kForms) {
    if (type != name) continue;
    tables.normalizer.push_back({.kind = kind});
    return {};
  }
  if (type == "Prepend") {
    TRIPTYCH_TRY(const auto text, text_member(part, "prepend", "normalizer Prepend", tables.where));
    tables.normalizer.push_back({.kind = Kind::kPrepend, .content = text});
    return {};
  }
  if (type == "Replace") {
    TRIPTYCH_TRY(const Pattern pattern, read_pattern(part, "normalizer Replace", tables.where));
    TRIPTYCH_TRY(const auto text, text_member(part, "content", "normalizer Replace", tables.where));
    tables.normalizer.push_back({.kind = pattern.regex ? Kind::kReplaceRegex : Kind::kReplace,
                                 .pattern = pattern.text,
                                 .content = text});
    return {};
  }
  return unsupported(
      tables.where,
      "normalizer \"" + type + "\", expected Sequence, NFC, NFD, NFKC, NFKD, Prepend or Replace");
}

Status add_split(const Json& part, BpeTables& tables) {
  TRIPTYCH_TRY(const auto behavior, json_string(part, "behavior", tables.where));
  // Isolated keeps matches and gaps alike, so that "invert" changes nothing.
  if (behavior.value_or("") != "Isolated") {
    return unsupported(tables.where, "pre_tokenizer Split with behavior \"" +
                                         behavior.value_or("") + "\", expected Isolated");
  }
  TRIPTYCH_TRY(const Pattern pattern, read_pattern(part, "pre_tokenizer Split", tables.where));
  tables.pre_tokenizer.push_back(
      {.pattern = pattern.regex ? pattern.text : literal_pattern(pattern.text)});
  return {};
}

Status add_byte_level(const Json& part, BpeTables& tables) {
  tables.alphabet = BpeAlphabet::kBytes;
  // Absent members mean true: the defaults of `tokenizers`.
  TRIPTYCH_TRY(const auto prefix, json_boolean(part, "add_prefix_space", tables.where));
  TRIPTYCH_TRY(const auto use_regex, json_boolean(part, "use_regex", tables.where));
  if (prefix.value_or(true)) {
    tables.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kPrefixSpace});
  }
  if (use_regex.value_or(true)) {
    tables.pre_tokenizer.push_back({.pattern = std::string(kGpt2Pattern)});
  }
  return {};
}

/// `replacement` and `prepend_scheme` of the Metaspace pre-tokenizer and decoder. Old files say
/// `add_prefix_space` for the schemes always and never.
struct Metaspace {
  std::string replacement;
  PreTokenizerStep::Prepend prepend = PreTokenizerStep::Prepend::kAlways;
};
Result<Metaspace> read_metaspace(const Json& part, const char* role, const std::string& where) {
  using Prepend = PreTokenizerStep::Prepend;
  const std::string what = std::string(role) + " Metaspace";
  Metaspace metaspace;
  TRIPTYCH_TRY(metaspace.replacement, text_member(part, "replacement", what, where));
  const std::string& replacement = metaspace.replacement;
  if (replacement.empty() || first_code_point(replacement).length != replacement.size()) {
    return corrupt(
        where, what + " has the \"replacement\" \"" + replacement + "\", expected one character");
  }
  TRIPTYCH_TRY(const auto scheme, json_string(part, "prepend_scheme", where));
  TRIPTYCH_TRY(const auto old, json_boolean(part, "add_prefix_space", where));
  constexpr std::array<std::pair<std::string_view, Prepend>, 3> kSchemes = {
      {{"always", Prepend::kAlways}, {"first", Prepend::kFirst}, {"never", Prepend::kNever}}};
  if (!scheme) {
    if (!old.value_or(true)) metaspace.prepend = Prepend::kNever;
    return metaspace;
  }
  for (const auto& [name, prepend] : kSchemes) {
    if (*scheme != name) continue;
    metaspace.prepend = prepend;
    return metaspace;
  }
  return unsupported(
      where, what + " with prepend_scheme \"" + *scheme + "\", expected always, first or never");
}

Status add_pre_tokenizer(const Json& part, const std::string& type, BpeTables& tables) {
  if (tables.alphabet == BpeAlphabet::kBytes) {
    return unsupported(tables.where, "pre_tokenizer \"" + type + "\" after ByteLevel");
  }
  if (type == "Split") return add_split(part, tables);
  if (type == "ByteLevel") return add_byte_level(part, tables);
  if (type == "Digits") {
    TRIPTYCH_TRY(const auto individual, json_boolean(part, "individual_digits", tables.where));
    tables.pre_tokenizer.push_back(
        {.pattern = std::string(kDigitPattern) + (individual.value_or(false) ? "" : "+")});
    return {};
  }
  if (type == "Metaspace") {
    TRIPTYCH_TRY(const Metaspace read, read_metaspace(part, "pre_tokenizer", tables.where));
    TRIPTYCH_TRY(const auto split, json_boolean(part, "split", tables.where));
    tables.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kMetaspace,
                                    .pattern = read.replacement,
                                    .prepend = read.prepend,
                                    .split = split.value_or(true)});
    return {};
  }
  return unsupported(tables.where, "pre_tokenizer \"" + type +
                                       "\", expected Sequence, Split, Digits, ByteLevel or "
                                       "Metaspace");
}

Status add_strip(const Json& part, DecoderRules& decoder, const std::string& where) {
  TRIPTYCH_TRY(const auto content, text_member(part, "content", "decoder Strip", where));
  TRIPTYCH_TRY(const auto start, json_integer(part, "start", where));
  TRIPTYCH_TRY(const auto stop, json_integer(part, "stop", where));
  if (content != " ") {
    return unsupported(where, "decoder Strip of \"" + content + "\", expected of a space");
  }
  if (stop.value_or(0) != 0) {
    return unsupported(where, "decoder Strip with stop " + std::to_string(*stop) + ", expected 0");
  }
  if (start.value_or(0) < 0) {
    return corrupt(where, "decoder Strip with start " + std::to_string(*start));
  }
  decoder.strip_start = start.value_or(0);
  return {};
}

/// The decoders of a plain-text vocabulary, in the order that DecoderRules applies them:
/// replacements, bytes, and, on the text as a whole, Strip.
class DecoderReader {
 public:
  explicit DecoderReader(BpeTables& tables) : tables_(tables) {}

  Status add(const Json& part, const std::string& type) {
    const std::string& where = tables_.where;
    DecoderRules& decoder = tables_.decoder;
    if (fused_ && type != "Fuse" && type != "Strip") {
      return unsupported(where, "decoder \"" + type + "\" after Fuse, expected Strip");
    }
    if (type == "Replace" && !decoder.byte_fallback) {
      TRIPTYCH_TRY(const Pattern pattern, read_pattern(part, "decoder Replace", where));
      if (pattern.regex) {
        return unsupported(where, "decoder Replace of the regular expression \"" + pattern.text +
                                      "\", expected a String");
      }
      TRIPTYCH_TRY(const auto content, text_member(part, "content", "decoder Replace", where));
      decoder.replacements.emplace_back(pattern.text, content);
      return {};
    }
    if (type == "ByteFallback") {
      decoder.byte_fallback = true;
      return {};
    }
    if (type == "Fuse") {
      fused_ = true;
      return {};
    }
    if (type == "Strip" && fused_) return add_strip(part, decoder, where);
    if (type == "Metaspace" && decoder.replacements.empty()) {
      TRIPTYCH_TRY(const Metaspace read, read_metaspace(part, "decoder", where));
      decoder.replacements.emplace_back(read.replacement, " ");
      if (read.prepend != PreTokenizerStep::Prepend::kNever) {
        decoder.drop_from_first = read.replacement;
      }
      return {};
    }
    return unsupported(where, "decoder \"" + type +
                                  "\", expected Metaspace, or Replace, ByteFallback, Fuse and "
                                  "Strip in this order, or ByteLevel for a byte-level vocabulary");
  }

 private:
  BpeTables& tables_;
  bool fused_ = false;
};

/// Ids of one special token of a template.
Status add_template_token(const Json& processor, const Json& token, std::vector<int32_t>& out,
                          const std::string& where) {
  TRIPTYCH_TRY(const auto name, text_member(token, "id", "a SpecialToken of the template", where));
  TRIPTYCH_TRY(const Json* known, json_member(processor, "special_tokens", kObject, where));
  const auto missing = [&] {
    return corrupt(where, "the template names the token \"" + name +
                              "\", which its \"special_tokens\" do not have");
  };
  if (known == nullptr) return missing();
  TRIPTYCH_TRY(const Json* entry, json_member(*known, name.c_str(), kObject, where));
  if (entry == nullptr) return missing();
  TRIPTYCH_TRY(const Json* ids, json_member(*entry, "ids", kArray, where));
  if (ids == nullptr) return missing();
  for (const Json& id : *ids) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return corrupt(where, "special token \"" + name + "\" has the id " + id.dump());
    }
    out.push_back(id.get<int32_t>());
  }
  return {};
}

/// The template of a single text: special tokens around one sequence.
Status add_template(const Json& part, BpeTables& tables) {
  const std::string& where = tables.where;
  TRIPTYCH_TRY(const Json* single, json_member(part, "single", kArray, where));
  if (single == nullptr) return corrupt(where, "TemplateProcessing has no \"single\"");
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  int sequences = 0;
  for (const Json& piece : *single) {
    TRIPTYCH_TRY(const Json* token, json_member(piece, "SpecialToken", kObject, where));
    if (token == nullptr) {
      TRIPTYCH_TRY(const Json* sequence, json_member(piece, "Sequence", kObject, where));
      if (sequence == nullptr) {
        return corrupt(where, "a piece of the template is neither SpecialToken nor Sequence");
      }
      ++sequences;
      continue;
    }
    TRIPTYCH_RETURN_IF_ERROR(
        add_template_token(part, *token, sequences == 0 ? before : after, where));
  }
  if (sequences != 1) {
    return unsupported(
        where, str_format("a template with %d sequences in \"single\", expected 1", sequences));
  }
  // A later processor wraps what an earlier one has made.
  tables.prefix.insert(tables.prefix.begin(), before.begin(), before.end());
  tables.suffix.insert(tables.suffix.end(), after.begin(), after.end());
  return {};
}

}  // namespace

Result<std::string> component_type(const Json& component, const char* role,
                                   const std::string& where) {
  TRIPTYCH_TRY(const auto type, json_string(component, "type", where));
  if (type) return *type;
  return corrupt(where, std::string("the ") + role + " has no \"type\"");
}

Status read_normalizer(const Json& root, BpeTables& tables) {
  return for_each_component(root, "normalizer", "normalizers", tables.where,
                            [&](const Json& part, const std::string& type) {
                              return add_normalizer(part, type, tables);
                            });
}

Status read_pre_tokenizer(const Json& root, BpeTables& tables) {
  tables.alphabet = BpeAlphabet::kCharacters;
  return for_each_component(root, "pre_tokenizer", "pretokenizers", tables.where,
                            [&](const Json& part, const std::string& type) {
                              return add_pre_tokenizer(part, type, tables);
                            });
}

Status read_decoder(const Json& root, BpeTables& tables) {
  const bool byte_level = tables.alphabet == BpeAlphabet::kBytes;
  bool any = false;
  DecoderReader reader(tables);
  TRIPTYCH_RETURN_IF_ERROR(for_each_component(
      root, "decoder", "decoders", tables.where,
      [&](const Json& part, const std::string& type) -> Status {
        any = true;
        if (!byte_level) return reader.add(part, type);
        if (type == "ByteLevel") return {};
        return unsupported(tables.where, "decoder \"" + type + "\", expected ByteLevel");
      }));
  if (any) return {};
  return unsupported(tables.where, std::string("no decoder, expected ") +
                                       (byte_level ? "ByteLevel" : "Metaspace or Replace"));
}

Status read_post_processor(const Json& root, BpeTables& tables) {
  return for_each_component(
      root, "post_processor", "processors", tables.where,
      [&](const Json& part, const std::string& type) -> Status {
        if (type == "ByteLevel") return {};  // moves offsets only
        if (type == "TemplateProcessing") return add_template(part, tables);
        return unsupported(
            tables.where,
            "post_processor \"" + type + "\", expected Sequence, TemplateProcessing or ByteLevel");
      });
}

}  // namespace triptych
