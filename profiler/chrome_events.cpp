// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/chrome_events.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace triptych {
namespace {

enum class Field : uint8_t {
  kIgnored,
  // of the file
  kTraceEvents,
  kBaseTime,
  kDropped,
  kUnlinked,
  kClock,
  kSource,
  // of an event
  kPh,
  kCat,
  kName,
  kTs,
  kDur,
  kPid,
  kTid,
  kArgs,
  // of an event's args
  kDevice,
  kStream,
  kCorrelation,
  kBytes,
  kKind,
  kIndex,
  kTokens,
  kStartNs,
  kEndNs,
};

struct FieldName {
  std::string_view name;
  Field field;
};
constexpr std::array<FieldName, 6> kFileFields = {{{"traceEvents", Field::kTraceEvents},
                                                   {"baseTimeNanoseconds", Field::kBaseTime},
                                                   {"dropped_records", Field::kDropped},
                                                   {"unlinked_records", Field::kUnlinked},
                                                   {"clock", Field::kClock},
                                                   {"source", Field::kSource}}};
constexpr std::array<FieldName, 8> kEventFields = {{{"ph", Field::kPh},
                                                    {"cat", Field::kCat},
                                                    {"name", Field::kName},
                                                    {"ts", Field::kTs},
                                                    {"dur", Field::kDur},
                                                    {"pid", Field::kPid},
                                                    {"tid", Field::kTid},
                                                    {"args", Field::kArgs}}};
constexpr std::array<FieldName, 9> kArgFields = {{{"device", Field::kDevice},
                                                  {"stream", Field::kStream},
                                                  {"correlation", Field::kCorrelation},
                                                  {"bytes", Field::kBytes},
                                                  {"kind", Field::kKind},
                                                  {"index", Field::kIndex},
                                                  {"tokens", Field::kTokens},
                                                  {"raw_start_ns", Field::kStartNs},
                                                  {"raw_end_ns", Field::kEndNs}}};

template <size_t N>
Field find_field(const std::array<FieldName, N>& fields, std::string_view name) {
  for (const FieldName& candidate : fields) {
    if (candidate.name == name) return candidate.field;
  }
  return Field::kIgnored;
}

// A number of the file, in each form that a field may want; empty where it does not fit.
struct Number {
  std::optional<int64_t> integer = {};
  std::optional<uint64_t> natural = {};
  std::optional<int64_t> us_as_ns = {};
};

// Follows the nesting of the few scopes that matter and counts its way through all others.
class EventSax {
 public:
  EventSax(ChromeHeader& header, const std::function<void(const ChromeEvent&)>& visit)
      : header_(header), visit_(visit) {}

  [[nodiscard]] bool found_events() const { return found_events_; }
  [[nodiscard]] size_t fault_offset() const { return fault_offset_; }
  [[nodiscard]] const std::string& fault() const { return fault_; }

  // The interface that nlohmann::json::sax_parse calls; `true` means go on.
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(int64_t value) {
    int64_t ns = 0;
    const bool fits = !__builtin_mul_overflow(value, 1000, &ns);
    on_number({value, std::nullopt, fits ? std::optional(ns) : std::nullopt});
    return true;
  }
  bool number_unsigned(uint64_t value) {
    constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const auto integer = static_cast<int64_t>(value);
    Number number{.natural = value};
    if (value <= kMax) number.integer = integer;
    if (value <= kMax / 1000) number.us_as_ns = integer * 1000;
    on_number(number);
    return true;
  }
  bool number_float(double, const std::string& text) {
    if (skipped_levels_ == 0 && (field_ == Field::kTs || field_ == Field::kDur)) {
      on_number({.us_as_ns = us_text_to_ns(text)});
    }
    return true;
  }
  bool string(const std::string& text) {
    if (skipped_levels_ == 0) on_string(text);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return true; }  // JSON text has none

  bool start_object(size_t) {
    if (skipped_levels_ == 0 && scope_ == Scope::kRoot) {
      scope_ = Scope::kFile;
    } else if (skipped_levels_ == 0 && scope_ == Scope::kEvents) {
      scope_ = Scope::kEvent;
      event_ = {};
    } else if (skipped_levels_ == 0 && scope_ == Scope::kEvent && field_ == Field::kArgs) {
      scope_ = Scope::kArgs;
    } else {
      ++skipped_levels_;
    }
    field_ = Field::kIgnored;
    return true;
  }
  bool end_object() {
    field_ = Field::kIgnored;
    if (skipped_levels_ > 0) {
      --skipped_levels_;
    } else if (scope_ == Scope::kArgs) {
      scope_ = Scope::kEvent;
    } else if (scope_ == Scope::kEvent) {
      scope_ = Scope::kEvents;
      visit_(event_);
    } else {
      scope_ = Scope::kRoot;
    }
    return true;
  }
  bool start_array(size_t) {
    const bool bare = scope_ == Scope::kRoot;
    const bool events = bare || (scope_ == Scope::kFile && field_ == Field::kTraceEvents);
    if (skipped_levels_ == 0 && events) {
      scope_ = Scope::kEvents;
      bare_array_ = bare;
      found_events_ = true;
    } else {
      ++skipped_levels_;
    }
    field_ = Field::kIgnored;
    return true;
  }
  bool end_array() {
    field_ = Field::kIgnored;
    if (skipped_levels_ > 0) {
      --skipped_levels_;
    } else {
      scope_ = bare_array_ ? Scope::kRoot : Scope::kFile;
    }
    return true;
  }
  bool key(const std::string& name) {
    if (skipped_levels_ > 0) return true;
    switch (scope_) {
      case Scope::kFile:
        field_ = find_field(kFileFields, name);
        break;
      case Scope::kEvent:
        field_ = find_field(kEventFields, name);
        break;
      case Scope::kArgs:
        field_ = find_field(kArgFields, name);
        break;
      default:
        field_ = Field::kIgnored;
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    fault_offset_ = position;
    // "[json.exception.parse_error.101] parse error at line 1, column 5: what happened"
    const std::string_view text = error.what();
    const size_t id_end = text.find("] ");
    const size_t place_end = text.find(": ");
    const size_t begin = place_end != std::string_view::npos ? place_end + 2 : id_end + 2;
    constexpr size_t kMostBytes = 200;  // the text repeats the last token, however long
    fault_ = std::string(text.substr(std::min(begin, text.size()), kMostBytes));
    return false;
  }

 private:
  enum class Scope { kRoot, kFile, kEvents, kEvent, kArgs };

  void on_number(const Number& number);
  void on_string(const std::string& text);

  ChromeHeader& header_;
  const std::function<void(const ChromeEvent&)>& visit_;
  ChromeEvent event_;
  Scope scope_ = Scope::kRoot;
  Field field_ = Field::kIgnored;
  int64_t skipped_levels_ = 0;  // open objects and arrays below scope_ that hold nothing of use
  bool bare_array_ = false;
  bool found_events_ = false;
  size_t fault_offset_ = 0;
  std::string fault_;
};

void EventSax::on_number(const Number& number) {
  if (skipped_levels_ > 0) return;
  const auto as_integer = [&](std::optional<int64_t>& field) { field = number.integer; };
  switch (field_) {
    case Field::kBaseTime:
      header_.base_time_ns = number.integer.value_or(0);
      break;
    case Field::kDropped:
      return as_integer(header_.dropped_records);
    case Field::kUnlinked:
      return as_integer(header_.unlinked_records);
    case Field::kTs:
      event_.ts_ns = number.us_as_ns;
      break;
    case Field::kDur:
      event_.dur_ns = number.us_as_ns;
      break;
    case Field::kPid:
      return as_integer(event_.process);
    case Field::kTid:
      return as_integer(event_.thread);
    case Field::kDevice:
      return as_integer(event_.device);
    case Field::kStream:
      return as_integer(event_.stream);
    case Field::kCorrelation:
      event_.correlation = number.natural;
      break;
    case Field::kBytes:
      return as_integer(event_.bytes);
    case Field::kIndex:
      return as_integer(event_.index);
    case Field::kTokens:
      return as_integer(event_.tokens);
    case Field::kStartNs:
      return as_integer(event_.start_ns);
    case Field::kEndNs:
      return as_integer(event_.end_ns);
    default:
      break;
  }
}

void EventSax::on_string(const std::string& text) {
  switch (field_) {
    case Field::kClock:
      header_.clock = text;
      break;
    case Field::kSource:
      header_.source = text;
      break;
    case Field::kPh:
      event_.phase = text.size() == 1 ? text[0] : '\0';
      break;
    case Field::kCat:
      event_.category = text;
      break;
    case Field::kName:
      event_.name = text;
      break;
    case Field::kKind:
      event_.kind = text;
      break;
    default:
      break;
  }
}

}  // namespace

std::optional<int64_t> us_text_to_ns(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  int exponent = 3;  // us -> ns
  if (const size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int written = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), written);
    if (parsed.ec != std::errc()) return std::nullopt;  // |exponent| > 2^31
    if (written > 1000 || written < -1000) return std::nullopt;
    exponent += written;
    text = text.substr(0, e);
  }
  // Digits as one integer times a power of ten. nlohmann hands the decimal point over in the
  // spelling of the C locale in force, so any other character stands for it.
  std::string digits;
  bool fraction = false;
  for (const char c : text) {
    if (c < '0' || c > '9') {
      fraction = true;
      continue;
    }
    digits += c;
    if (fraction) --exponent;
  }
  int64_t value = 0;
  const int64_t kept = static_cast<int64_t>(digits.size()) + exponent;
  for (int64_t i = 0; i < kept; ++i) {
    const int digit = i < static_cast<int64_t>(digits.size()) ? digits[i] - '0' : 0;
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value)) {
      return std::nullopt;
    }
  }
  if (kept >= 0 && kept < static_cast<int64_t>(digits.size()) && digits[kept] >= '5' &&
      __builtin_add_overflow(value, 1, &value)) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

Result<ChromeHeader> read_chrome_events(std::string_view json, std::string_view where,
                                        const std::function<void(const ChromeEvent&)>& visit) {
  ChromeHeader header;
  EventSax sax(header, visit);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &sax)) {
    return fail(ErrorCode::kCorrupt,
                str_format("not JSON at byte %zu: %s", sax.fault_offset(), sax.fault().c_str()),
                std::string(where));
  }
  if (!sax.found_events()) {
    return fail(ErrorCode::kCorrupt,
                "no array of events up to byte " + std::to_string(json.size()) +
                    "; expected an object with \"traceEvents\", or an array",
                std::string(where));
  }
  return header;
}

}  // namespace triptych
