// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/yaml_reader.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/strings.h"

namespace triptych {
namespace {

constexpr size_t kShownCharacters = 60;  ///< Enough to recognise the text, short enough for a line.

std::string list_words(YamlReader::Words words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

/// A decimal integer without leading zeros that an int64 can hold; nullopt for anything else.
std::optional<int64_t> decimal(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string describe_value(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      return "an empty value";
    case YamlValue::Kind::kSequence:
      return value.items.empty() ? "an empty list" : "a list";
    case YamlValue::Kind::kMapping:
      return "a mapping";
    case YamlValue::Kind::kScalar:
      break;
  }
  if (value.text.size() <= kShownCharacters) return "\"" + value.text + "\"";
  size_t cut = kShownCharacters;  // not inside a UTF-8 sequence
  while ((static_cast<unsigned char>(value.text[cut]) & 0xC0) == 0x80) --cut;
  return "\"" + value.text.substr(0, cut) + "...\"";
}

std::string suggestion(std::string_view found, YamlReader::Words candidates) {
  const std::vector<std::string> names(candidates.begin(), candidates.end());
  const std::string near = nearest(found, names);
  if (!near.empty()) return "; did you mean \"" + near + "\"?";
  return "; expected " + list_words(candidates);
}

void YamlReader::error(const SourcePlace& place, std::string message, ErrorCode code) {
  errors_.push_back({place, std::move(message), code});
}

Error YamlReader::take_errors() {
  TRIPTYCH_CHECK(has_errors(), "no error was noted");
  std::stable_sort(errors_.begin(), errors_.end(), [](const Noted& a, const Noted& b) {
    return std::tie(a.place.line, a.place.column) < std::tie(b.place.line, b.place.column);
  });
  Error first{errors_.front().code, errors_.front().message,
              describe_place(file_, errors_.front().place)};
  first.message += source_excerpt(text_, errors_.front().place);
  const size_t shown = std::min(errors_.size(), kMaxErrors);
  for (size_t i = 1; i < shown; ++i) {
    const Noted& noted = errors_[i];
    first.message += "\n" + describe_place(file_, noted.place) + ": " + noted.message;
    first.message += source_excerpt(text_, noted.place);
  }
  if (shown < errors_.size()) {
    first.message += str_format("\n%zu more errors", errors_.size() - shown);
  }
  errors_.clear();
  return first;
}

void YamlReader::check_duplicates(const YamlValue& mapping, std::string_view what) {
  std::map<std::string_view, int> first_lines;
  for (const YamlEntry& entry : mapping.entries) {
    const auto [first, is_new] = first_lines.emplace(entry.key, entry.place.line);
    if (is_new) continue;
    error(entry.place, "duplicate key \"" + entry.key + "\" in " + std::string(what) +
                           str_format("; first given at line %d", first->second));
  }
}

bool YamlReader::mapping_of_names(const YamlValue& value, std::string_view what) {
  if (value.kind != YamlValue::Kind::kMapping) {
    error(value.place, std::string(what) + ": expected a mapping, found " + describe_value(value));
    return false;
  }
  check_duplicates(value, what);
  return true;
}

bool YamlReader::mapping(const YamlValue& value, std::string_view what, Words allowed) {
  if (!mapping_of_names(value, what)) return false;
  for (const YamlEntry& entry : value.entries) {
    if (std::find(allowed.begin(), allowed.end(), entry.key) != allowed.end()) continue;
    error(entry.place, "unknown key \"" + entry.key + "\" in " + std::string(what) +
                           suggestion(entry.key, allowed));
  }
  return true;
}

void YamlReader::require(const YamlValue& mapping, const SourcePlace& place, std::string_view what,
                         std::string_view key, Words allowed) {
  if (mapping.kind != YamlValue::Kind::kMapping || mapping.find(key) != nullptr) return;
  const std::vector<std::string> names(allowed.begin(), allowed.end());
  for (const YamlEntry& entry : mapping.entries) {
    const bool known = std::find(allowed.begin(), allowed.end(), entry.key) != allowed.end();
    if (!known && nearest(entry.key, names) == key) return;
  }
  error(place, std::string(what) + ": the key \"" + std::string(key) + "\" is missing");
}

std::string YamlReader::string(const YamlValue& value, std::string_view what) {
  if (value.kind == YamlValue::Kind::kScalar && !value.text.empty()) return value.text;
  error(value.place, std::string(what) + ": expected text, found " + describe_value(value));
  return "";
}

int64_t YamlReader::integer(const YamlValue& value, std::string_view what, int64_t lowest,
                            int64_t highest) {
  const bool plain = value.kind == YamlValue::Kind::kScalar && !value.quoted;
  const std::optional<int64_t> number = plain ? decimal(value.text) : std::nullopt;
  if (number && *number >= lowest && *number <= highest) return *number;
  error(value.place, str_format("%s: expected an integer from %lld to %lld, found %s",
                                std::string(what).c_str(), static_cast<long long>(lowest),
                                static_cast<long long>(highest), describe_value(value).c_str()));
  return lowest;
}

double YamlReader::number(const YamlValue& value, std::string_view what, double lowest,
                          double highest) {
  if (value.kind == YamlValue::Kind::kScalar && !value.quoted && !value.text.empty()) {
    double number = 0;
    const char* const end = value.text.data() + value.text.size();
    const auto [stop, error] = std::from_chars(value.text.data(), end, number);
    if (error == std::errc() && stop == end && number >= lowest && number <= highest) return number;
  }
  error(value.place,
        str_format("%s: expected a number from %g to %g, found %s", std::string(what).c_str(),
                   lowest, highest, describe_value(value).c_str()));
  return lowest;
}

bool YamlReader::boolean(const YamlValue& value, std::string_view what) {
  if (value.kind == YamlValue::Kind::kScalar && !value.quoted) {
    if (value.text == "true") return true;
    if (value.text == "false") return false;
  }
  error(value.place,
        std::string(what) + ": expected true or false, found " + describe_value(value));
  return false;
}

std::string YamlReader::word(const YamlValue& value, std::string_view what, Words allowed) {
  if (value.kind != YamlValue::Kind::kScalar) {
    error(value.place, std::string(what) + ": expected " + list_words(allowed) + ", found " +
                           describe_value(value));
    return "";
  }
  if (std::find(allowed.begin(), allowed.end(), value.text) == allowed.end()) {
    const std::string hint = suggestion(value.text, allowed);
    error(value.place, std::string(what) + ": " + describe_value(value) + " is not known" + hint);
    return "";
  }
  return value.text;
}

}  // namespace triptych
