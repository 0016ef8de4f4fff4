// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "base/strings.h"

namespace triptych {
namespace {

/// Leaves yaml-cpp's parser from inside an event.
struct YamlFailure {
  SourcePlace place;
  std::string message;
};

SourcePlace place_of(const YAML::Mark& mark) {
  if (mark.is_null()) return {};
  return {mark.line + 1, mark.column + 1};
}

/// Builds the tree from parser events. Depth and size are checked as events arrive, before a
/// hostile document can exhaust the stack or the memory.
class TreeBuilder final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override { root_ = {}; }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(leaf(YamlValue::Kind::kNull, mark), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    // The parser says "?" for a plain scalar and "!" for a quoted or block one.
    const bool quoted = tag == "!";
    const bool null = !quoted && (text == "~" || text == "null" || text == "Null" ||
                                  text == "NULL" || text.empty());
    YamlValue value = leaf(null ? YamlValue::Kind::kNull : YamlValue::Kind::kScalar, mark);
    if (!null) value.text = text;
    value.quoted = quoted;
    add(std::move(value), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      throw YamlFailure{place_of(mark), "an alias inside the value that it stands for"};
    }
    YamlValue copy = found->second;
    count(size_of(copy), mark);
    add(std::move(copy), 0);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlValue::Kind::kSequence, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlValue::Kind::kMapping, mark, anchor);
  }
  void OnMapEnd() override { close(); }

  /// The document, once the parser is through. A key that is not a word is told only now: half of a
  /// syntax error looks like one, and then the parser's own message is the better one.
  YamlValue take() {
    if (bad_key_) throw YamlFailure{*bad_key_, "a key must be a word"};
    return std::move(root_);
  }

 private:
  struct Frame {
    YamlValue value;
    YAML::anchor_t anchor = 0;
    bool has_key = false;  ///< A mapping whose last entry waits for its value.
  };

  YamlValue leaf(YamlValue::Kind kind, const YAML::Mark& mark) {
    count(1, mark);
    YamlValue value;
    value.kind = kind;
    value.place = place_of(mark);
    return value;
  }

  void open(YamlValue::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (stack_.size() >= static_cast<size_t>(kMaxYamlDepth)) {
      throw YamlFailure{place_of(mark),
                        str_format("nested more than %d levels deep", kMaxYamlDepth)};
    }
    stack_.push_back({leaf(kind, mark), anchor, false});
  }

  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    add(std::move(frame.value), frame.anchor);
  }

  void add(YamlValue value, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = value;
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.value.kind == YamlValue::Kind::kSequence) {
      frame.value.items.push_back(std::move(value));
    } else if (frame.has_key) {
      // The parser places an empty value at whatever comes next.
      if (value.kind == YamlValue::Kind::kNull) value.place = frame.value.entries.back().place;
      frame.value.entries.back().value = std::move(value);
      frame.has_key = false;
    } else {
      if (value.kind != YamlValue::Kind::kScalar && !bad_key_) bad_key_ = value.place;
      frame.value.entries.push_back({std::move(value.text), value.place, {}});
      frame.has_key = true;
    }
  }

  static size_t size_of(const YamlValue& value) {
    size_t size = 1;
    for (const YamlValue& item : value.items) size += size_of(item);
    for (const YamlEntry& entry : value.entries) size += 1 + size_of(entry.value);
    return size;
  }

  void count(size_t values, const YAML::Mark& mark) {
    count_ += values;
    if (count_ > kMaxYamlValues) {
      throw YamlFailure{place_of(mark), str_format("more than %zu values (aliases count as what "
                                                   "they stand for)",
                                                   kMaxYamlValues)};
    }
  }

  YamlValue root_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, YamlValue> anchors_;
  std::optional<SourcePlace> bad_key_;
  size_t count_ = 0;
};

/// What no spec may contain, found line by line so that the message has a place.
Status check_characters(std::string_view text, std::string_view file) {
  const auto refuse = [&](int line, size_t column, std::string message) {
    return fail(ErrorCode::kInvalidArgument, std::move(message),
                describe_place(file, {line, static_cast<int>(column) + 1}));
  };
  if (text.size() > kMaxYamlBytes) {
    return fail(ErrorCode::kInvalidArgument,
                str_format("%zu bytes long; at most %zu are read", text.size(), kMaxYamlBytes),
                std::string(file));
  }
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++number;
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (!is_valid_utf8(line)) return refuse(number, 0, "this line is not UTF-8 text");
    bool indentation = true;
    for (size_t i = 0; i < line.size(); ++i) {
      const auto c = static_cast<unsigned char>(line[i]);
      if (indentation && c == '\t') {
        return refuse(number, i, "a tab in indentation; YAML allows only spaces there");
      }
      indentation = indentation && c == ' ';
      if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7F) {
        return refuse(number, i, str_format("control character 0x%02x", c));
      }
    }
  }
  return {};
}

}  // namespace

std::string describe_place(std::string_view file, const SourcePlace& place) {
  if (!place.override_text.empty()) return place.override_text;
  if (place.line == 0) return std::string(file);
  return str_format("%.*s:%d:%d", static_cast<int>(file.size()), file.data(), place.line,
                    place.column);
}

std::string source_excerpt(std::string_view text, const SourcePlace& place) {
  if (place.line == 0 || !place.override_text.empty()) return "";
  const std::vector<std::string> lines = split(text, '\n');
  if (static_cast<size_t>(place.line) > lines.size()) return "";
  std::string line = lines[static_cast<size_t>(place.line) - 1];
  if (line.ends_with('\r')) line.pop_back();
  const auto indent = static_cast<size_t>(place.column) - 1;
  constexpr size_t kLongestLine = 160;  // a terminal or two; longer lines hide the caret
  if (line.size() > kLongestLine || indent > line.size()) return "";
  return "\n    " + line + "\n    " + std::string(indent, ' ') + "^";
}

const YamlValue* YamlValue::find(std::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

YamlValue* YamlValue::find(std::string_view key) {
  return const_cast<YamlValue*>(std::as_const(*this).find(key));
}

Result<YamlValue> parse_yaml(std::string_view text, std::string_view file) {
  TRIPTYCH_RETURN_IF_ERROR(check_characters(text, file));
  const auto refuse = [&](const SourcePlace& place, std::string message) {
    return fail(ErrorCode::kInvalidArgument, std::move(message) + source_excerpt(text, place),
                describe_place(file, place));
  };
  TreeBuilder builder;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return refuse({1, 1}, "the document is empty");
    YamlValue root = builder.take();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return refuse(second.take().place, "a second document; expected one document in a file");
    }
    return root;
  } catch (const YamlFailure& failure) {
    return refuse(failure.place, failure.message);
  } catch (const YAML::Exception& error) {
    return refuse(place_of(error.mark), "not valid YAML: " + error.msg);
  } catch (const std::exception& error) {
    return refuse({}, std::string("not valid YAML: ") + error.what());
  }
}

}  // namespace triptych
