// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The part of a stack that says which program of another project it is.
#include <array>
#include <charconv>
#include <limits>
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

/// A plain scalar is what YAML and JSON both write so; anything else is text.
Json scalar_json(const YamlValue& value) {
  if (value.quoted) return value.text;
  if (value.text == "true" || value.text == "false") return value.text == "true";
  if (value.text == "null" || value.text == "~") return nullptr;
  const char* const begin = value.text.data();
  const char* const end = begin + value.text.size();
  int64_t integer = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, integer);
      error == std::errc() && stop == end) {
    return integer;
  }
  double number = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, number);
      error == std::errc() && stop == end && number - number == 0) {  // neither inf nor nan
    return number;
  }
  return value.text;
}

Json to_json(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      return nullptr;
    case YamlValue::Kind::kScalar:
      return scalar_json(value);
    case YamlValue::Kind::kSequence: {
      Json list = Json::array();
      for (const YamlValue& item : value.items) list.push_back(to_json(item));
      return list;
    }
    case YamlValue::Kind::kMapping: {
      Json object = Json::object();
      for (const YamlEntry& entry : value.entries) object[entry.key] = to_json(entry.value);
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
    command.options = to_json(*options).dump();
  }
  if (const YamlValue* timeout = stack.find("timeout")) {
    read_timeout(reader, *timeout, what + ".timeout", command.timeouts);
  }
}

}  // namespace triptych
