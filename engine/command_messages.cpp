// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/command_messages.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "engine/base64.h"

namespace triptych {
namespace {

constexpr size_t kMaxText = 300;  // of each text that an engine says about itself

/// One line of moderate length, as a report can show it.
std::string plain_text(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  if (text.size() <= kMaxText) return text;
  size_t end = kMaxText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not in UTF-8
  return text.substr(0, end) + "...";
}

Result<int64_t> positive(const Json& record, const char* key) {
  TRIPTYCH_TRY(const int64_t value, required_integer(record, key));
  if (value > 0) return value;
  return fail(ErrorCode::kCorrupt, str_format("\"%s\" is %lld, expected more than 0", key,
                                              static_cast<long long>(value)));
}

Status read_abilities(const Json& record, EngineReady& ready) {
  TRIPTYCH_TRY(const Json* can, json_member(record, "can", Json::value_t::array, ""));
  if (can == nullptr) return {};
  for (const Json& ability : *can) {
    ready.can_score = ready.can_score || ability == "score";
    ready.can_arrivals = ready.can_arrivals || ability == "arrivals";
    ready.can_trace = ready.can_trace || ability == "trace";
  }
  return {};
}

Status read_frameworks(const Json& record, EngineReady& ready) {
  TRIPTYCH_TRY(const Json* frameworks,
               json_member(record, "frameworks", Json::value_t::object, ""));
  if (frameworks == nullptr) return {};
  for (const auto& [name, version] : frameworks->items()) {
    if (!version.is_string()) {
      return fail(ErrorCode::kCorrupt, "the version of \"" + name + "\" is no string");
    }
    ready.frameworks +=
        (ready.frameworks.empty() ? "" : ", ") + name + " " + version.get_ref<const std::string&>();
  }
  ready.frameworks = plain_text(ready.frameworks);
  return {};
}

}  // namespace

Result<int64_t> required_integer(const Json& record, const char* key) {
  TRIPTYCH_TRY(const auto value, json_integer(record, key, ""));
  if (value) return *value;
  return fail(ErrorCode::kCorrupt, "\"" + std::string(key) + "\" is missing");
}

Result<std::string> required_string(const Json& record, const char* key) {
  TRIPTYCH_TRY(const auto value, json_string(record, key, ""));
  if (value) return *value;
  return fail(ErrorCode::kCorrupt, "\"" + std::string(key) + "\" is missing");
}

Result<std::string> optional_text(const Json& record, const char* key) {
  TRIPTYCH_TRY(const auto text, json_string(record, key, ""));
  return plain_text(text.value_or(""));
}

std::string open_message(const OpenMessage& open, const EngineOptions& options) {
  Json message = {{"type", "open"},
                  {"protocol", kCommandProtocol},
                  {"model", open.model.string()},
                  {"weights", open.weights},
                  {"device", options.device == DeviceKind::kCuda ? "cuda" : "cpu"},
                  {"threads", options.num_threads},
                  {"max_batch", options.max_batch},
                  {"max_sequence", options.max_sequence},
                  {"eos_token_id", nullptr},
                  {"options", open.options}};
  if (open.eos_token_id) message["eos_token_id"] = *open.eos_token_id;
  return message.dump();
}

std::string generate_message(int64_t pass, int64_t concurrency, std::span<const Request> requests,
                             const TraceFile* trace) {
  Json list = Json::array();
  for (size_t i = 0; i < requests.size(); ++i) {
    Json request = {{"id", i},
                    {"prompt", requests[i].prompt},
                    {"max_new_tokens", requests[i].max_new_tokens},
                    {"ignore_eos", requests[i].ignore_eos}};
    if (requests[i].arrival_ns) request["arrival_ns"] = *requests[i].arrival_ns;
    list.push_back(std::move(request));
  }
  Json message = {{"type", "generate"},
                  {"pass", pass},
                  {"concurrency", concurrency},
                  {"sampling", "greedy"},
                  {"requests", std::move(list)}};
  if (trace != nullptr)
    message["trace"] = {{"path", trace->path.string()}, {"steps", trace->steps}};
  return message.dump();
}

std::string score_message(std::span<const int32_t> tokens, int64_t prefill_tokens) {
  return Json({{"type", "score"},
               {"tokens", std::vector<int32_t>(tokens.begin(), tokens.end())},
               {"prefill_tokens", prefill_tokens}})
      .dump();
}

std::string EngineReady::text() const {
  std::string text = engine + " " + version + " on " + device;
  if (!kernels.empty()) text += ": " + kernels;
  if (!frameworks.empty()) text += "; " + frameworks;
  return text;
}

Result<EngineReady> parse_ready(const Json& record) {
  EngineReady ready;
  TRIPTYCH_TRY(const int64_t protocol, required_integer(record, "protocol"));
  if (protocol != kCommandProtocol) {
    return fail(ErrorCode::kUnsupported, str_format("it speaks protocol %lld, expected %lld",
                                                    static_cast<long long>(protocol),
                                                    static_cast<long long>(kCommandProtocol)));
  }
  TRIPTYCH_TRY(ready.engine, required_string(record, "engine"));
  TRIPTYCH_TRY(ready.version, required_string(record, "version"));
  TRIPTYCH_TRY(ready.device, required_string(record, "device"));
  for (std::string* text : {&ready.engine, &ready.version, &ready.device}) {
    *text = plain_text(std::move(*text));
  }
  TRIPTYCH_TRY(ready.vocab_size, positive(record, "vocab_size"));
  TRIPTYCH_RETURN_IF_ERROR(read_abilities(record, ready));
  TRIPTYCH_RETURN_IF_ERROR(read_frameworks(record, ready));
  TRIPTYCH_TRY(ready.kernels, optional_text(record, "kernels"));
  TRIPTYCH_TRY(const auto bytes, json_integer(record, "weight_bytes", ""));
  ready.weight_bytes = bytes.value_or(0);
  if (ready.weight_bytes < 0) {
    return fail(ErrorCode::kCorrupt, str_format("\"weight_bytes\" is %lld, expected a size",
                                                static_cast<long long>(ready.weight_bytes)));
  }
  return ready;
}

Result<Json> parse_record(const std::string& line) {
  constexpr std::string_view kKey = "\"f32\":\"";
  constexpr size_t kShort = 4096;  // what a JSON parser reads in no time
  const size_t key = line.size() < kShort ? std::string::npos : line.find(kKey);
  if (key > kShort) return parse_json_object(line, "");
  const size_t begin = key + kKey.size();
  const size_t end = line.find('"', begin);
  // Base64 has no escapes; a text that has some is left to the parser.
  if (end == std::string::npos || std::memchr(line.data() + begin, '\\', end - begin) != nullptr) {
    return parse_json_object(line, "");
  }
  TRIPTYCH_TRY(Json record, parse_json_object(line.substr(0, begin) + line.substr(end), ""));
  const auto found = record.find("f32");
  // Elsewhere than in the record itself, the key means nothing.
  if (found == record.end() || *found != "") return parse_json_object(line, "");
  *found = line.substr(begin, end - begin);
  return record;
}

Error parse_error_record(const Json& record) {
  const auto code = required_string(record, "code");
  const auto message = required_string(record, "message");
  if (!code) return code.error();
  if (!message) return message.error();
  if (*code == "unsupported") return {ErrorCode::kUnsupported, plain_text(*message), ""};
  if (*code == "out_of_memory") return {ErrorCode::kOutOfMemory, plain_text(*message), ""};
  return {ErrorCode::kIo, plain_text(*message), ""};
}

Status parse_logits(const Json& record, int64_t position, int64_t vocab_size,
                    std::vector<float>& logits) {
  TRIPTYCH_TRY(const int64_t found, required_integer(record, "position"));
  if (found != position) {
    return fail(ErrorCode::kCorrupt,
                str_format("logits of position %lld, expected %lld", static_cast<long long>(found),
                           static_cast<long long>(position)));
  }
  TRIPTYCH_TRY(const Json* text, json_member(record, "f32", Json::value_t::string, ""));
  if (text == nullptr) return fail(ErrorCode::kCorrupt, "\"f32\" is missing");
  const auto bytes = decode_base64(text->get_ref<const std::string&>());
  if (!bytes) return fail(ErrorCode::kCorrupt, "\"f32\" is not base64");
  if (bytes->size() != static_cast<size_t>(vocab_size) * sizeof(float)) {
    return fail(ErrorCode::kCorrupt,
                str_format("%zu bytes of logits, expected 4 for each of %lld tokens", bytes->size(),
                           static_cast<long long>(vocab_size)));
  }
  logits.resize(static_cast<size_t>(vocab_size));
  std::memcpy(logits.data(), bytes->data(), bytes->size());
  const auto nan = std::find_if(logits.begin(), logits.end(), [](float x) { return x != x; });
  if (nan == logits.end()) return {};
  return fail(ErrorCode::kCorrupt,
              str_format("logit %zd of position %lld is not a number", nan - logits.begin(),
                         static_cast<long long>(position)));
}

}  // namespace triptych
