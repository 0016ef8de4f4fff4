// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The part of a stack that says which program of another project it is.
#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>

#include "base/strings.h"
#include "engine/adapter_file.h"
#include "engine/json.h"
#include "experiments/spec_sections.h"

namespace triptych {
namespace {

constexpr std::array<std::string_view, 7> kBuiltinKeys = {
    "runtime", "kv", "linear", "parallel", "kv_cache_tokens", "prefill_chunk", "memory_limit"};
constexpr std::array<std::string_view, 3> kTimeoutKeys = {"start_s", "record_s", "pass_s"};
constexpr double kLongestSeconds = 7 * 24 * 3600;  // a week; more is a slip
constexpr size_t kMaxArguments = 256;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

/// An integer of the YAML 1.2 core schema: a base, the digits, and whether it is below 0.
struct IntegerText {
  int base = 10;
  std::string_view digits;
  bool negative = false;
};

std::optional<IntegerText> integer_text(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  IntegerText integer{.base = 10, .digits = text, .negative = text.starts_with('-')};
  std::string_view allowed = kDigits.substr(0, 10);
  if (text.starts_with("0x")) {
    integer = {.base = 16, .digits = text.substr(2)};
    allowed = kDigits;
  } else if (text.starts_with("0o")) {
    integer = {.base = 8, .digits = text.substr(2)};
    allowed = kDigits.substr(0, 8);
  } else if (text.starts_with('-') || text.starts_with('+')) {
    integer.digits.remove_prefix(1);
  }
  const bool digits_only = integer.digits.find_first_not_of(allowed) == std::string_view::npos;
  if (integer.digits.empty() || !digits_only) return std::nullopt;
  return integer;
}

/// Has the form of a number with a point or an exponent, "1.5", ".5", "2e-3", of any size.
bool is_float_text(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const auto skip_digits = [&text] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count;
  };
  size_t digits = skip_digits();
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    digits += skip_digits();
  }
  if (digits == 0) return false;
  if (text.empty()) return true;
  if (!text.starts_with('e') && !text.starts_with('E')) return false;
  text.remove_prefix(1);
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return skip_digits() > 0 && text.empty();
}

/// A plain scalar is what the core schema of YAML 1.2 says, as most readers of YAML do; a number
/// that JSON has no 64-bit form for is refused, because any other value would be a silent change.
Json scalar_json(YamlReader& reader, const YamlValue& value, const std::string& what) {
  const std::string_view text = value.text;
  if (value.quoted) return value.text;
  if (is_one_of(text, {"true", "True", "TRUE"})) return true;
  if (is_one_of(text, {"false", "False", "FALSE"})) return false;
  if (is_one_of(text, {"null", "Null", "NULL", "~"})) return nullptr;
  if (const auto integer = integer_text(text)) {
    const std::string digits = (integer->negative ? "-" : "") + std::string(integer->digits);
    const char* const end = digits.data() + digits.size();
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(digits.data(), end, number, integer->base);
    if (error == std::errc() && stop == end) return number;
    reader.error(value.place, what + ": " + describe_value(value) +
                                  " does not fit into 64 bits; quote it if it is text");
    return nullptr;
  }
  const std::string_view unsigned_text = text.substr(text.starts_with('+') ? 1 : 0);
  if (is_float_text(text)) {
    const char* const end = unsigned_text.data() + unsigned_text.size();
    double number = 0;
    const auto [stop, error] = std::from_chars(unsigned_text.data(), end, number);
    if (error == std::errc() && stop == end) return number;
  }
  const std::string_view name = text.substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
  const bool not_finite =
      is_one_of(name, {".inf", ".Inf", ".INF"}) || is_one_of(text, {".nan", ".NaN", ".NAN"});
  if (is_float_text(text) || not_finite) {
    reader.error(value.place, what + ": " + describe_value(value) +
                                  " is no number that JSON can hold; quote it if it is text");
    return nullptr;
  }
  return value.text;
}

Json to_json(YamlReader& reader, const YamlValue& value, const std::string& what) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      return nullptr;
    case YamlValue::Kind::kScalar:
      return scalar_json(reader, value, what);
    case YamlValue::Kind::kSequence: {
      Json list = Json::array();
      for (const YamlValue& item : value.items) list.push_back(to_json(reader, item, what));
      return list;
    }
    case YamlValue::Kind::kMapping: {
      Json object = Json::object();
      for (const YamlEntry& entry : value.entries) {
        object[entry.key] = to_json(reader, entry.value, what + "." + entry.key);
      }
      return object;
    }
  }
  return nullptr;
}

void read_adapter(YamlReader& reader, const YamlValue& value, const std::string& what,
                  CommandSpec& command) {
  const std::string text = reader.string(value, what);
  if (text.empty()) return;
  const std::vector<std::string> names = adapter_names();
  const std::vector<std::string_view> words(names.begin(), names.end());
  command.adapter = text;
  if (text.ends_with(".py") || adapter_text(text)) return;
  reader.error(value.place, what + ": \"" + text +
                                "\" is neither an adapter of this program nor a "
                                ".py file" +
                                suggestion(text, words));
}

void read_argv(YamlReader& reader, const YamlValue& value, const std::string& what,
               CommandSpec& command) {
  if (value.kind != YamlValue::Kind::kSequence || value.items.empty() ||
      value.items.size() > kMaxArguments) {
    reader.error(value.place, what + ": expected a list of the program and its arguments, found " +
                                  describe_value(value));
    return;
  }
  for (const YamlValue& item : value.items) {
    if (item.kind == YamlValue::Kind::kScalar && item.text.find('\0') == std::string::npos) {
      command.argv.push_back(item.text);
    } else {
      reader.error(item.place, what + ": expected text, found " + describe_value(item));
    }
  }
  if (!command.argv.empty() && command.argv.front().empty()) {
    reader.error(value.place, what + ": the program has no name");
  }
}

void read_timeout(YamlReader& reader, const YamlValue& value, const std::string& what,
                  CommandTimeouts& timeouts) {
  if (!reader.mapping(value, what, kTimeoutKeys)) return;
  const std::array<std::pair<std::string_view, int64_t*>, 3> fields = {
      {{"start_s", &timeouts.start_ns},
       {"record_s", &timeouts.record_ns},
       {"pass_s", &timeouts.pass_ns}}};
  for (const auto& [key, field] : fields) {
    const YamlValue* seconds = value.find(key);
    if (seconds == nullptr) continue;
    const double number =
        reader.number(*seconds, what + "." + std::string(key), 0.001, kLongestSeconds);
    *field = static_cast<int64_t>(number * 1e9);
  }
}

}  // namespace

std::string CommandSpec::text() const {
  const std::string program = adapter.empty() ? join(argv, " ") : adapter;
  return options == "{}" ? program : program + " " + options;
}

void read_command(YamlReader& reader, const YamlValue& stack, const std::string& what,
                  const SourcePlace& place, const std::filesystem::path& folder,
                  CommandSpec& command) {
  command.folder = folder;
  for (const std::string_view key : kBuiltinKeys) {
    if (const YamlValue* value = stack.find(key)) {
      reader.error(value->place, what + "." + std::string(key) +
                                     " is for built-in engines only; what another engine is to do "
                                     "goes into \"options\"");
    }
  }
  const YamlValue* adapter = stack.find("adapter");
  const YamlValue* argv = stack.find("command");
  if ((adapter == nullptr) == (argv == nullptr)) {
    reader.error(place, what + ": expected exactly one of \"adapter\" and \"command\"");
  }
  if (adapter != nullptr) read_adapter(reader, *adapter, what + ".adapter", command);
  if (argv != nullptr) read_argv(reader, *argv, what + ".command", command);
  if (const YamlValue* options = stack.find("options");
      options != nullptr && reader.mapping_of_names(*options, what + ".options")) {
    command.options = to_json(reader, *options, what + ".options").dump();
  }
  if (const YamlValue* timeout = stack.find("timeout")) {
    read_timeout(reader, *timeout, what + ".timeout", command.timeouts);
  }
}

}  // namespace triptych
