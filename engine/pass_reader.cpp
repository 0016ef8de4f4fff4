// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/pass_reader.h"

#include <algorithm>

#include "base/check.h"
#include "base/strings.h"
#include "engine/command_messages.h"

namespace triptych {
namespace {

Unexpected wrong(std::string message) { return fail(ErrorCode::kCorrupt, std::move(message)); }

long long ll(int64_t value) { return static_cast<long long>(value); }

/// A time: not negative, so that differences of two of them cannot overflow.
Result<int64_t> required_time(const Json& record, const char* key) {
  TRIPTYCH_TRY(const int64_t ns, required_integer(record, key));
  if (ns >= 0) return ns;
  return wrong(str_format("\"%s\" is %lld, expected a time", key, ll(ns)));
}

}  // namespace

PassReader::PassReader(const PassQuestion& question) : question_(question) {
  const size_t count = question.requests.size();
  result_.requests.resize(count);
  states_.resize(count, State::kWaiting);
  turn_.resize(count);
  int64_t turn = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!question.requests[i].arrival_ns) turn_[i] = turn++;
    const auto tokens = static_cast<size_t>(question.requests[i].max_new_tokens);
    result_.requests[i].tokens.reserve(tokens);
    result_.requests[i].token_ns.reserve(tokens);
  }
  last_ns_ = question.sent_ns;
}

Status PassReader::take(const Json& record, int64_t received_ns) {
  TRIPTYCH_CHECK(!ended_, "nothing comes after the end");
  TRIPTYCH_TRY(const std::string type, required_string(record, "type"));
  const bool known =
      type == "start" || type == "prefill" || type == "tokens" || type == "done" || type == "end";
  if (!known || started_ == (type == "start")) {
    return wrong("a record \"" + type.substr(0, 40) + "\", expected " +
                 (started_ ? "\"prefill\", \"tokens\", \"done\" or \"end\"" : "\"start\""));
  }
  TRIPTYCH_TRY(const int64_t ns, required_time(record, "ns"));
  TRIPTYCH_RETURN_IF_ERROR(check_time(ns, received_ns));
  last_ns_ = ns;
  if (type == "start") return take_start(record);
  if (type == "prefill") return take_prefill(record);
  if (type == "tokens") return take_tokens(record);
  return type == "done" ? take_done(record) : take_end(record);
}

Status PassReader::check_time(int64_t ns, int64_t received_ns) const {
  if (ns > received_ns) {
    return wrong(
        str_format("its time is %lld ns after the record was read; times are those of "
                   "CLOCK_MONOTONIC",
                   ll(ns - received_ns)));
  }
  if (ns >= last_ns_) return {};
  if (!started_) {
    return wrong(
        str_format("the pass starts %lld ns before it was sent; times are those of "
                   "CLOCK_MONOTONIC",
                   ll(last_ns_ - ns)));
  }
  return wrong(str_format("times run backwards by %lld ns", ll(last_ns_ - ns)));
}

Status PassReader::check_pass(const Json& record) const {
  TRIPTYCH_TRY(const int64_t pass, required_integer(record, "pass"));
  if (pass == question_.pass) return {};
  return wrong(str_format("pass is %lld, expected %lld", ll(pass), ll(question_.pass)));
}

Status PassReader::take_start(const Json& record) {
  TRIPTYCH_RETURN_IF_ERROR(check_pass(record));
  started_ = true;
  result_.start_ns = last_ns_;
  return {};
}

Result<size_t> PassReader::request_of(const Json& id) const {
  const size_t count = states_.size();
  if (id.is_number_integer()) {
    const auto value = id.get<int64_t>();
    if (value >= 0 && static_cast<size_t>(value) < count) return static_cast<size_t>(value);
  }
  return wrong("there is no request " + id.dump().substr(0, 40) +
               str_format(", expected 0 to %zu", count - 1));
}

Result<std::vector<size_t>> PassReader::read_ids(const Json& record) const {
  TRIPTYCH_TRY(const Json* list, json_member(record, "ids", Json::value_t::array, ""));
  if (list == nullptr) return wrong("\"ids\" is missing");
  std::vector<size_t> ids;
  for (const Json& id : *list) {
    TRIPTYCH_TRY(const size_t request, request_of(id));
    ids.push_back(request);
  }
  return ids;
}

Status PassReader::begin(size_t request, int64_t ns) {
  if (states_[request] != State::kWaiting) return {};
  const std::optional<int64_t>& arrival = question_.requests[request].arrival_ns;
  int64_t due_ns = result_.start_ns + arrival.value_or(0);
  if (!arrival && turn_[request] >= question_.concurrency) {
    // Its client has to have finished another request before.
    const auto before = static_cast<size_t>(turn_[request] - question_.concurrency);
    if (before < releases_ns_.size()) due_ns = releases_ns_[before];
  }
  if (running_ >= question_.concurrency) {
    return wrong(str_format("request %zu begins while %lld others run, which is the concurrency",
                            request, ll(running_)));
  }
  if (ns < due_ns) {
    return wrong(
        str_format("request %zu begins %lld ns before it was submitted", request, ll(due_ns - ns)));
  }
  states_[request] = State::kRunning;
  ++running_;
  result_.requests[request].submit_ns = due_ns;
  result_.requests[request].admit_ns = due_ns;
  return {};
}

Status PassReader::take_prefill(const Json& record) {
  TRIPTYCH_TRY(const std::vector<size_t> ids, read_ids(record));
  TRIPTYCH_TRY(const int64_t start_ns, required_time(record, "start_ns"));
  if (start_ns > last_ns_) {
    return wrong(str_format("it starts %lld ns after it ends", ll(start_ns - last_ns_)));
  }
  for (const size_t id : ids) {
    if (states_[id] != State::kWaiting) {
      return wrong(str_format("the prompt of request %zu is read after it has begun", id));
    }
    TRIPTYCH_RETURN_IF_ERROR(begin(id, start_ns));
    result_.requests[id].admit_ns = start_ns;
  }
  ++prefills_;
  return {};
}

Status PassReader::take_tokens(const Json& record) {
  TRIPTYCH_TRY(const Json* list, json_member(record, "of", Json::value_t::array, ""));
  if (list == nullptr) return wrong("\"of\" is missing");
  for (const Json& entry : *list) TRIPTYCH_RETURN_IF_ERROR(take_token_entry(entry));
  return {};
}

Status PassReader::take_token_entry(const Json& entry) {
  if (!entry.is_array() || entry.size() < 3) {
    return wrong("an entry of \"of\" is " + entry.dump().substr(0, 40) +
                 ", expected [id, index, token, ...]");
  }
  TRIPTYCH_TRY(const size_t id, request_of(entry[0]));
  if (states_[id] == State::kDone)
    return wrong(
        str_format("a token of request %zu, which has "
                   "ended",
                   id));
  TRIPTYCH_RETURN_IF_ERROR(begin(id, last_ns_));
  RequestResult& answer = result_.requests[id];
  if (entry[1] != answer.tokens.size()) {
    return wrong(str_format("request %zu: token number ", id) + entry[1].dump().substr(0, 40) +
                 str_format(", expected %zu", answer.tokens.size()));
  }
  const auto most = static_cast<size_t>(question_.requests[id].max_new_tokens);
  if (entry.size() - 2 > most - answer.tokens.size()) {
    return wrong(str_format("request %zu: more than the %zu tokens that were asked for", id, most));
  }
  for (size_t i = 2; i < entry.size(); ++i) {
    const bool integer = entry[i].is_number_integer();
    const int64_t token = integer ? entry[i].get<int64_t>() : -1;
    if (token < 0 || token >= question_.vocab_size) {
      return wrong(str_format("request %zu: token ", id) + entry[i].dump().substr(0, 40) +
                   str_format(" is outside of the vocabulary of %lld", ll(question_.vocab_size)));
    }
    answer.tokens.push_back(static_cast<int32_t>(token));
    answer.token_ns.push_back(last_ns_);
  }
  return {};
}

Status PassReader::check_end_of(size_t request, const std::string& reason) const {
  const Request& asked = question_.requests[request];
  const std::vector<int32_t>& tokens = result_.requests[request].tokens;
  const auto count = static_cast<int64_t>(tokens.size());
  const std::string what = str_format("request %zu ends with %lld of %lld tokens", request,
                                      ll(count), ll(asked.max_new_tokens));
  const std::optional<int32_t>& eos = question_.eos_token_id;
  if (!asked.ignore_eos && eos && count > 0) {
    const auto first = std::find(tokens.begin(), tokens.end() - 1, *eos);
    if (first != tokens.end() - 1) return wrong(what + ", but it goes on after its end of text");
  }
  if (reason == "length" && count == asked.max_new_tokens) return {};
  if (reason == "length") return wrong(what);
  if (asked.ignore_eos) return wrong(what + ", stopped although it was to ignore an end of text");
  if (count == 0 || tokens.back() != eos)
    return wrong(what +
                 ", of which the last is no end of "
                 "text");
  return {};
}

Status PassReader::take_done(const Json& record) {
  TRIPTYCH_TRY(const std::vector<size_t> ids, read_ids(record));
  TRIPTYCH_TRY(const std::string reason, required_string(record, "reason"));
  if (reason != "length" && reason != "stop") {
    return wrong("reason is \"" + reason.substr(0, 40) + "\", expected \"length\" or \"stop\"");
  }
  for (const size_t id : ids) {
    if (states_[id] != State::kRunning) {
      return wrong(str_format("the end of request %zu, which is not running", id));
    }
    TRIPTYCH_RETURN_IF_ERROR(check_end_of(id, reason));
    states_[id] = State::kDone;
    --running_;
    if (!question_.requests[id].arrival_ns) releases_ns_.push_back(last_ns_);
  }
  return {};
}

Status PassReader::take_end(const Json& record) {
  TRIPTYCH_RETURN_IF_ERROR(check_pass(record));
  const auto missing = std::find_if(states_.begin(), states_.end(),
                                    [](State state) { return state != State::kDone; });
  if (missing != states_.end()) {
    const auto id = static_cast<size_t>(missing - states_.begin());
    return wrong(str_format("the pass ends before request %zu (%zu of %lld tokens)", id,
                            result_.requests[id].tokens.size(),
                            ll(question_.requests[id].max_new_tokens)));
  }
  size_t longest = 1;
  for (const RequestResult& answer : result_.requests) {
    longest = std::max(longest, answer.tokens.size());
  }
  TRIPTYCH_TRY(const auto prefills, json_integer(record, "prefill_steps", ""));
  TRIPTYCH_TRY(const auto decodes, json_integer(record, "decode_steps", ""));
  TRIPTYCH_TRY(const auto peak, json_integer(record, "peak_bytes", ""));
  TRIPTYCH_TRY(trace_, optional_text(record, "trace"));
  TRIPTYCH_TRY(trace_error_, optional_text(record, "trace_error"));
  result_.prefill_steps = prefills.value_or(prefills_);
  result_.decode_steps = decodes.value_or(static_cast<int64_t>(longest) - 1);
  peak_bytes_ = peak.value_or(0);
  if (result_.prefill_steps < 0 || result_.decode_steps < 0 || peak_bytes_ < 0) {
    return wrong("a count of steps or bytes is negative");
  }
  result_.end_ns = last_ns_;
  ended_ = true;
  return {};
}

GenerateResult PassReader::result() && {
  TRIPTYCH_CHECK(ended_, "a pass that has not ended has no result");
  return std::move(result_);
}

std::string PassReader::trace_fault() const {
  if (!trace_error_.empty()) return trace_error_;
  return trace_ == "written" ? "" : "its \"end\" says neither \"trace\" nor \"trace_error\"";
}

std::string PassReader::progress() const {
  size_t tokens = 0;
  for (const RequestResult& answer : result_.requests) tokens += answer.tokens.size();
  return str_format("%lld of %zu requests done, %zu tokens",
                    ll(std::count(states_.begin(), states_.end(), State::kDone)), states_.size(),
                    tokens);
}

}  // namespace triptych
