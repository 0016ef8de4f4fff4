// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/arrivals.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/random.h"
#include "base/strings.h"

namespace triptych {
namespace {

using Json = nlohmann::json;

// Beyond what any pass lasts; keeps every sum of times within 64 bits.
constexpr double kLongestNs = 1e9 * 86400 * 366;
constexpr int64_t kMostTokens = 1 << 20;

Unexpected refuse(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

/// A scalar as it is written; a list in a list in a list would be dumped by recursion.
std::string excerpt(const Json& value) {
  return value.is_structured() ? std::string("a list or an object") : value.dump().substr(0, 40);
}

Result<std::optional<int64_t>> json_length(const Json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end()) return std::optional<int64_t>();
  if (!found->is_number_integer() || *found < 1 || *found > kMostTokens) {
    return refuse(str_format("\"%s\" is %s, expected 1 to %lld", key, excerpt(*found).c_str(),
                             static_cast<long long>(kMostTokens)));
  }
  return std::optional<int64_t>(found->get<int64_t>());
}

Result<Arrival> parse_json_line(std::string_view line) {
  const Json entry = Json::parse(line, nullptr, false);
  if (!entry.is_object() || !entry.contains("timestamp")) {
    return refuse(
        "expected {\"timestamp\": ms, \"input_length\": n, \"output_length\": n}, found " +
        std::string(line.substr(0, 60)));
  }
  const Json& time = entry["timestamp"];
  const double ns = time.is_number() ? time.get<double>() * 1e6 : -1;
  if (!(ns >= 0 && ns <= kLongestNs)) {
    return refuse("\"timestamp\" is " + excerpt(time) + ", expected ms from 0 to one year");
  }
  Arrival arrival;
  arrival.arrival_ns = std::llround(ns);
  TRIPTYCH_TRY(arrival.prompt_tokens, json_length(entry, "input_length"));
  TRIPTYCH_TRY(arrival.output_tokens, json_length(entry, "output_length"));
  return arrival;
}

/// The whole of `text` as a decimal integer in [lowest, highest].
std::optional<int64_t> integer(std::string_view text, int64_t lowest, int64_t highest) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < lowest || value > highest) return std::nullopt;
  return value;
}

/// ns since 1970 of "YYYY-MM-DD HH:MM:SS" with an optional fraction of up to nine digits.
std::optional<int64_t> timestamp_ns(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' ||
      text[16] != ':') {
    return std::nullopt;
  }
  const auto year = integer(text.substr(0, 4), 1970, 2200);
  const auto month = integer(text.substr(5, 2), 1, 12);
  const auto day = integer(text.substr(8, 2), 1, 31);
  const auto hour = integer(text.substr(11, 2), 0, 23);
  const auto minute = integer(text.substr(14, 2), 0, 59);
  const auto second = integer(text.substr(17, 2), 0, 60);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  int64_t fraction = 0;
  if (text.size() > 19) {
    std::string digits(text.substr(20));
    if (text[19] != '.' || digits.empty() || digits.size() > 9) return std::nullopt;
    digits.resize(9, '0');
    const auto value = integer(digits, 0, 999999999);
    if (!value) return std::nullopt;
    fraction = *value;
  }
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return ((days * 24 + *hour) * 60 + *minute) * 60'000'000'000 + *second * 1'000'000'000 + fraction;
}

constexpr std::string_view kCsvHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

Result<Arrival> parse_csv_line(std::string_view line) {
  const std::vector<std::string> fields = split(line, ',');
  if (fields.size() != 3) return refuse("expected " + std::string(kCsvHeader));
  Arrival arrival;
  const auto time = timestamp_ns(trim(fields[0]));
  if (!time) {
    return refuse("\"" + fields[0].substr(0, 40) +
                  "\" is no timestamp, expected YYYY-MM-DD HH:MM:SS.fraction");
  }
  arrival.arrival_ns = *time;
  arrival.prompt_tokens = integer(trim(fields[1]), 1, kMostTokens);
  arrival.output_tokens = integer(trim(fields[2]), 1, kMostTokens);
  if (!arrival.prompt_tokens || !arrival.output_tokens) {
    return refuse("expected token counts from 1 to " + std::to_string(kMostTokens) + ", found \"" +
                  fields[1].substr(0, 40) + "\" and \"" + fields[2].substr(0, 40) + "\"");
  }
  return arrival;
}

/// Shortest decimal text: 4, 0.5, 1e-05.
std::string number_text(double value) { return str_format("%.12g", value); }

std::string place(const ArrivalTrace& trace, int line) {
  return trace.path.string() + ":" + std::to_string(line);
}

Status apply_lengths(const ArrivalTrace& trace, const Arrival& arrival, Request& request) {
  if (!arrival.prompt_tokens || !arrival.output_tokens) {
    return fail(ErrorCode::kInvalidArgument,
                "the spec wants lengths from the trace, but this entry has none",
                place(trace, arrival.line));
  }
  if (*arrival.prompt_tokens > static_cast<int64_t>(request.prompt.size()) ||
      *arrival.output_tokens > request.max_new_tokens) {
    return fail(ErrorCode::kInvalidArgument,
                str_format("%lld prompt and %lld output tokens, but the workload's prompt_tokens "
                           "and output_tokens allow %zu and %lld",
                           static_cast<long long>(*arrival.prompt_tokens),
                           static_cast<long long>(*arrival.output_tokens), request.prompt.size(),
                           static_cast<long long>(request.max_new_tokens)),
                place(trace, arrival.line));
  }
  request.prompt.resize(static_cast<size_t>(*arrival.prompt_tokens));
  request.max_new_tokens = *arrival.output_tokens;
  return {};
}

}  // namespace

std::string ArrivalSpec::label() const {
  switch (kind) {
    case Kind::kClosed:
      return "closed";
    case Kind::kPoisson:
      return "poisson:" + number_text(rate_per_s);
    case Kind::kTrace:
      return "trace:" + trace.filename().string() +
             (speed == 1 ? "" : ",speed=" + number_text(speed)) + (lengths ? ",lengths" : "");
  }
  TRIPTYCH_CHECK(false, "unknown arrival process");
}

Result<ArrivalTrace> parse_arrival_trace(std::string_view text, const std::filesystem::path& path) {
  ArrivalTrace trace{path, content_hash(text), {}};
  const bool csv = path.extension() == ".csv";
  bool header = csv;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++number;
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trim(text.substr(begin, end - begin));
    begin = end + 1;
    if (line.empty()) continue;
    if (header) {
      header = false;
      if (line == kCsvHeader) continue;
      return fail(ErrorCode::kInvalidArgument,
                  "expected the header " + std::string(kCsvHeader) + ", found " +
                      std::string(line.substr(0, 60)),
                  place(trace, number));
    }
    Result<Arrival> arrival = csv ? parse_csv_line(line) : parse_json_line(line);
    if (!arrival) return fail(arrival.error().code, arrival.error().message, place(trace, number));
    arrival->line = number;
    trace.arrivals.push_back(*arrival);
  }
  if (trace.arrivals.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the trace has no entry", path.string());
  }
  std::stable_sort(trace.arrivals.begin(), trace.arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.arrival_ns < b.arrival_ns; });
  const int64_t first = trace.arrivals.front().arrival_ns;
  for (Arrival& arrival : trace.arrivals) arrival.arrival_ns -= first;
  return trace;
}

Result<ArrivalTrace> load_arrival_trace(const std::filesystem::path& path) {
  TRIPTYCH_TRY(const MappedFile file, MappedFile::open(path));
  return parse_arrival_trace(file.text(), path);
}

Status schedule_arrivals(const ArrivalSpec& arrivals, const ArrivalTrace* trace, uint64_t seed,
                         std::span<Request> requests) {
  if (arrivals.kind == ArrivalSpec::Kind::kClosed) return {};
  if (arrivals.kind == ArrivalSpec::Kind::kPoisson) {
    // Its own stream, so that block order and sampling of the same seed stay what they are.
    const uint64_t stream = random_bits(seed, 0x6172726976616c73);  // "arrivals"
    double time_ns = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].arrival_ns = std::llround(std::min(time_ns, kLongestNs));
      time_ns -= std::log(1.0 - random_uniform(stream, i)) / arrivals.rate_per_s * 1e9;
    }
    return {};
  }
  TRIPTYCH_CHECK(trace != nullptr, "a trace was loaded");
  if (trace->arrivals.size() < requests.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_format("the trace has %zu entries, but the workload asks for %zu requests",
                           trace->arrivals.size(), requests.size()),
                trace->path.string());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Arrival& arrival = trace->arrivals[i];
    const double arrival_ns = static_cast<double>(arrival.arrival_ns) / arrivals.speed;
    if (arrival_ns > kLongestNs) {
      return fail(ErrorCode::kInvalidArgument,
                  str_format("at speed %s this request would come after %.3g days, expected one "
                             "year at most",
                             number_text(arrivals.speed).c_str(), arrival_ns / 86400e9),
                  place(*trace, arrival.line));
    }
    requests[i].arrival_ns = std::llround(arrival_ns);
    if (arrivals.lengths) TRIPTYCH_RETURN_IF_ERROR(apply_lengths(*trace, arrival, requests[i]));
  }
  return {};
}

}  // namespace triptych
