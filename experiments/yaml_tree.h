// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// YamlValue: a YAML document as plain data, with the place of every value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace triptych {

/// Place of a value, for errors that are found later than parsing.
struct SourcePlace {
  int line = 0;    ///< From 1; 0 = not in a file.
  int column = 0;  ///< From 1, in characters.
  /// "--set measure.blocks=5" when the value came from the command line, else "".
  std::string override_text = {};
};

/// "file:line:column", the override's text, or the file alone when the place is unknown.
[[nodiscard]] std::string describe_place(std::string_view file, const SourcePlace& place);

/// "\n", the line of `text` at `place`, and a caret under the column; "" when the place is not in
/// the text or the line is too long to show.
[[nodiscard]] std::string source_excerpt(std::string_view text, const SourcePlace& place);

struct YamlEntry;

/// One value of a document. Aliases are expanded; tags are ignored; duplicate keys are kept, so
/// that the reader can refuse them.
struct YamlValue {
  enum class Kind : uint8_t { kNull, kScalar, kSequence, kMapping };
  Kind kind = Kind::kNull;
  std::string text;                ///< Scalars.
  bool quoted = false;             ///< A quoted or block scalar is text, whatever it looks like.
  std::vector<YamlValue> items;    ///< Sequences.
  std::vector<YamlEntry> entries;  ///< Mappings, in file order.
  SourcePlace place;

  /// The first value of `key`, or null.
  [[nodiscard]] const YamlValue* find(std::string_view key) const;
  [[nodiscard]] YamlValue* find(std::string_view key);
};

struct YamlEntry {
  std::string key;
  SourcePlace place;  ///< Of the key.
  YamlValue value;
};

inline constexpr int kMaxYamlDepth = 32;          ///< Specs use 4; deeper is hostile or a mistake.
inline constexpr size_t kMaxYamlValues = 100000;  ///< Bounds what aliases can blow up to.
inline constexpr size_t kMaxYamlBytes = 1 << 20;  ///< A spec is a page or two.

/// Parses the one document of `text`. Errors: kInvalidArgument at `file:line:column` for text that
/// is empty, not UTF-8, has control characters or tabs in indentation, YAML syntax, more than one
/// document, a key that is not a scalar, an alias inside its own anchor, or a limit above.
[[nodiscard]] Result<YamlValue> parse_yaml(std::string_view text, std::string_view file);

/// Sets `key_path` ("stacks.full.weights") to the YAML `value`. Missing keys on the way are made
/// (the reader refuses what it does not know), but not below the mappings of `named`, whose keys
/// are names that the user chose: there only the last key of the path is made. Places in what is
/// new name `override_text`. Errors: kInvalidArgument with the nearest name.
[[nodiscard]] Status set_yaml_value(YamlValue& root, std::string_view key_path,
                                    std::string_view value, std::string_view override_text,
                                    std::span<const std::string_view> named);

/// The value as YAML in one fixed form: comments, layout, quoting style and anchors leave no trace.
/// One line a key for the first `block_levels` levels, flow style below. parse_yaml() of the result
/// gives the same tree but for places.
[[nodiscard]] std::string canonical_yaml(const YamlValue& value, int block_levels);

}  // namespace triptych
