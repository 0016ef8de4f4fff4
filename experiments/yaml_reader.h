// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// YamlReader: typed access to a YamlValue that collects every mistake with its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "experiments/yaml_tree.h"

namespace triptych {

/// Checks values against what is expected. A mismatch is noted and a harmless value of the type is
/// returned, so that one pass finds all mistakes of a file.
class YamlReader {
 public:
  using Words = std::span<const std::string_view>;

  /// `file` is named in errors; `text` is the document, shown below the first message, and must
  /// outlive the reader.
  YamlReader(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}

  void error(const SourcePlace& place, std::string message,
             ErrorCode code = ErrorCode::kInvalidArgument);
  [[nodiscard]] bool has_errors() const { return !errors_.empty(); }
  [[nodiscard]] size_t error_count() const { return errors_.size(); }
  /// The errors in the order of their places, as one: `where`, `code` and `message` are those of
  /// the first, the others follow in the message on lines of their own (kMaxErrors at most).
  /// Precondition: has_errors().
  [[nodiscard]] Error take_errors();

  // `what` names the value in messages: "workload.prompt_tokens".

  /// Is a mapping, without unknown or duplicate keys.
  [[nodiscard]] bool mapping(const YamlValue& value, std::string_view what, Words allowed);
  /// Is a mapping without duplicate keys; the keys are names chosen by the user.
  [[nodiscard]] bool mapping_of_names(const YamlValue& value, std::string_view what);
  /// Notes, at `place`, that `key` is missing; not when an unknown key looks like it, because that
  /// one was noted with the right name already.
  void require(const YamlValue& mapping, const SourcePlace& place, std::string_view what,
               std::string_view key, Words allowed);
  /// Any scalar, not empty.
  [[nodiscard]] std::string string(const YamlValue& value, std::string_view what);
  /// A decimal integer in [lowest, highest].
  [[nodiscard]] int64_t integer(const YamlValue& value, std::string_view what, int64_t lowest,
                                int64_t highest);
  /// A finite decimal number in [lowest, highest].
  [[nodiscard]] double number(const YamlValue& value, std::string_view what, double lowest,
                              double highest);
  /// true or false.
  [[nodiscard]] bool boolean(const YamlValue& value, std::string_view what);
  /// A scalar that is one of `allowed`.
  [[nodiscard]] std::string word(const YamlValue& value, std::string_view what, Words allowed);

  static constexpr size_t kMaxErrors = 20;

 private:
  struct Noted {
    SourcePlace place;
    std::string message;
    ErrorCode code;
  };

  void check_duplicates(const YamlValue& mapping, std::string_view what);

  std::string file_;
  std::string_view text_;
  std::vector<Noted> errors_;
};

/// What a value is, for messages: `"abc"`, "an empty value", "a list", "a mapping".
[[nodiscard]] std::string describe_value(const YamlValue& value);

/// "; did you mean \"x\"?" when a candidate is near, else "; expected a, b or c".
[[nodiscard]] std::string suggestion(std::string_view found, YamlReader::Words candidates);

}  // namespace triptych
