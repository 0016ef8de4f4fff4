// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The writing half of yaml_tree.h: overrides and the canonical form.
#include <algorithm>

#include "base/strings.h"
#include "experiments/yaml_tree.h"

namespace triptych {
namespace {

/// Plain style is kept for words that no YAML version reads as anything but text.
bool is_plain_text(std::string_view text) {
  static constexpr std::string_view kNotText[] = {"null", "true", "false", "yes", "no",
                                                  "on",   "off",  "y",     "n"};
  if (text.empty()) return false;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (!is_letter(text.front()) && text.front() != '_') return false;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!is_letter(c) && !digit && std::string_view("_-./+").find(c) == std::string_view::npos) {
      return false;
    }
  }
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return std::find(std::begin(kNotText), std::end(kNotText), lower) == std::end(kNotText);
}

/// Unquoted scalars that are not text (numbers, true, false) keep their own spelling.
bool is_plain_value(std::string_view text) {
  static constexpr std::string_view kBooleans[] = {"true",  "True",  "TRUE",
                                                   "false", "False", "FALSE"};
  if (std::find(std::begin(kBooleans), std::end(kBooleans), text) != std::end(kBooleans)) {
    return true;
  }
  if (text.empty() || text.size() > 64) return false;
  if (text.starts_with("0x") || text.starts_with("0o")) {
    return text.size() > 2 &&
           text.substr(2).find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
  }
  const bool fraction = text.size() > 1 && text[0] == '.' && text[1] >= '0' && text[1] <= '9';
  return text.find_first_not_of("0123456789+-.eE") == std::string_view::npos &&
         text.find_first_of("0123456789") != std::string_view::npos &&
         (text.front() != '.' || fraction) &&
         !(text.front() == '-' && text.size() > 1 && text[1] == '-');
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += str_format("\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string scalar(const YamlValue& value) {
  if (is_plain_text(value.text) || (!value.quoted && is_plain_value(value.text))) {
    return value.text;
  }
  return quote(value.text);
}

std::string key_text(const std::string& key) { return is_plain_text(key) ? key : quote(key); }

void write_flow(const YamlValue& value, std::string& out) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      out += "null";
      break;
    case YamlValue::Kind::kScalar:
      out += scalar(value);
      break;
    case YamlValue::Kind::kSequence:
      out += '[';
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) out += ", ";
        write_flow(value.items[i], out);
      }
      out += ']';
      break;
    case YamlValue::Kind::kMapping:
      out += '{';
      for (size_t i = 0; i < value.entries.size(); ++i) {
        if (i > 0) out += ", ";
        out += key_text(value.entries[i].key) + ": ";
        write_flow(value.entries[i].value, out);
      }
      out += '}';
      break;
  }
}

void write_block(const YamlValue& value, int block_levels, size_t indent, std::string& out) {
  if (value.kind != YamlValue::Kind::kMapping || value.entries.empty() || block_levels == 0) {
    if (indent > 0) out += ' ';
    write_flow(value, out);
    out += '\n';
    return;
  }
  if (indent > 0) out += '\n';
  for (const YamlEntry& entry : value.entries) {
    out += std::string(indent, ' ') + key_text(entry.key) + ":";
    write_block(entry.value, block_levels - 1, indent + 2, out);
  }
}

void set_places(YamlValue& value, const SourcePlace& place) {
  value.place = place;
  for (YamlValue& item : value.items) set_places(item, place);
  for (YamlEntry& entry : value.entries) {
    entry.place = place;
    set_places(entry.value, place);
  }
}

}  // namespace

std::string canonical_yaml(const YamlValue& value, int block_levels) {
  std::string out;
  write_block(value, block_levels, 0, out);
  return out;
}

Status set_yaml_value(YamlValue& root, std::string_view key_path, std::string_view value,
                      std::string_view override_text, std::span<const std::string_view> named) {
  const auto refuse = [&](std::string message) {
    return fail(ErrorCode::kInvalidArgument, std::move(message), std::string(override_text));
  };
  if (trim(value).empty()) return refuse("the value is empty");
  auto parsed = parse_yaml(value, override_text);
  if (!parsed) {  // without the excerpt: the value stands in front of the message already
    return refuse("the value: " + split(parsed.error().message, '\n')[0]);
  }
  set_places(*parsed, {0, 0, std::string(override_text)});

  YamlValue* node = &root;
  const std::vector<std::string> keys = split(key_path, '.');
  std::string parent = "the spec";
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool last = i + 1 == keys.size();
    if (node->kind == YamlValue::Kind::kNull) node->kind = YamlValue::Kind::kMapping;  // "key:"
    if (node->kind != YamlValue::Kind::kMapping) {
      return refuse(parent + " is not a mapping, so it has no key \"" + keys[i] + "\"");
    }
    YamlValue* child = node->find(keys[i]);
    const bool is_name = std::find(named.begin(), named.end(), parent) != named.end();
    if (child == nullptr && !last && is_name) {
      std::vector<std::string> known;
      for (const YamlEntry& entry : node->entries) known.push_back(entry.key);
      const std::string near = nearest(keys[i], known);
      return refuse(
          "no key \"" + keys[i] + "\" in " + parent +
          (near.empty() ? "; it has " + join(known, ", ") : "; did you mean \"" + near + "\"?"));
    }
    if (child == nullptr) {
      node->entries.push_back({keys[i], parsed->place, {}});
      child = &node->entries.back().value;
      child->place = parsed->place;
      if (!last) child->kind = YamlValue::Kind::kMapping;
    }
    parent = i == 0 ? keys[i] : parent + "." + keys[i];
    node = child;
  }
  *node = std::move(*parsed);
  return {};
}

}  // namespace triptych
