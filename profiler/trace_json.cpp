// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/trace_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "profiler/chrome_events.h"

namespace triptych {
namespace {

// Kineto's `cat` of each kind, in the order of ActivityKind: these are written. What follows them
// is also read: driver calls, and the names that PyTorch used before 1.12.
struct Category {
  std::string_view name;
  ActivityKind kind;
};
constexpr std::array<Category, 11> kCategories = {{
    {"kernel", ActivityKind::kKernel},
    {"gpu_memcpy", ActivityKind::kMemcpy},
    {"gpu_memset", ActivityKind::kMemset},
    {"cuda_sync", ActivityKind::kSync},
    {"cuda_runtime", ActivityKind::kRuntime},
    {"collective", ActivityKind::kCollective},
    {"cuda_driver", ActivityKind::kRuntime},
    {"Kernel", ActivityKind::kKernel},
    {"Memcpy", ActivityKind::kMemcpy},
    {"Memset", ActivityKind::kMemset},
    {"Runtime", ActivityKind::kRuntime},
}};
constexpr std::string_view kPhaseCategory = "user_annotation";
constexpr std::string_view kProfilerStep = "ProfilerStep#";
constexpr std::array<std::string_view, 2> kPhaseKindNames = {"prefill", "decode"};

// Process of the phase track: above any device id in use, so that it stays apart from devices.
constexpr int64_t kPhaseProcess = 1'000'000;

std::string json_string(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// True where `start` and `end` can be drawn: stamped, in order.
bool is_regular(int64_t start_ns, int64_t end_ns) {
  return start_ns <= end_ns && (start_ns != 0 || end_ns != 0);
}

class TraceWriter {
 public:
  TraceWriter(const Trace& trace, std::ostream& out) : trace_(trace), out_(out) {
    find_base();
    for (size_t id = 0; id < trace.names.size(); ++id) {
      names_.push_back(json_string(trace.names[static_cast<uint32_t>(id)]));
    }
  }

  void write() {
    header();
    tracks();
    for (const Phase& phase : trace_.phases) write_phase(phase);
    for (const Activity& activity : trace_.activities) write_activity(activity);
    buffer_ += "\n]}\n";
    flush();
  }

 private:
  void find_base() {
    int64_t base = std::numeric_limits<int64_t>::max();
    for (const Activity& a : trace_.activities) {
      if (is_regular(a.start_ns, a.end_ns)) base = std::min(base, a.start_ns);
    }
    for (const Phase& p : trace_.phases) {
      if (is_regular(p.start_ns, p.end_ns)) base = std::min(base, p.start_ns);
    }
    base_ns_ = base == std::numeric_limits<int64_t>::max() ? 0 : base;
  }

  void header() {
    const RecordQuality& quality = trace_.quality;
    field("{\"schemaVersion\":", 1);
    field(",\"displayTimeUnit\":\"ns\",\"baseTimeNanoseconds\":", base_ns_);
    field(",\"dropped_records\":", quality.dropped);
    field(",\"zero_time_records\":", quality.zero_time);
    field(",\"inverted_records\":", quality.inverted);
    field(",\"unlinked_records\":", quality.unlinked);
    buffer_ += ",\"clock\":" + json_string(trace_.clock);
    buffer_ += ",\"source\":" + json_string(trace_.source);
    buffer_ += ",\"traceEvents\":[";
  }

  // Names and order of processes (devices) and threads (streams).
  void tracks() {
    std::set<std::pair<int32_t, int32_t>> streams;
    for (const Activity& a : trace_.activities) streams.emplace(a.device_id, a.stream_id);
    if (!trace_.phases.empty()) {
      metadata("process_name", kPhaseProcess, 0, "\"name\":\"phases\"");
      metadata("process_sort_index", kPhaseProcess, 0, "\"sort_index\":-1");
      metadata("thread_name", kPhaseProcess, 0, "\"name\":\"phases\"");
    }
    std::optional<int32_t> device;
    for (const auto& [device_id, stream_id] : streams) {
      if (device != device_id) {
        device = device_id;
        metadata("process_name", device_id, 0,
                 "\"name\":\"device " + std::to_string(device_id) + "\"");
      }
      metadata("thread_name", device_id, stream_id,
               "\"name\":\"stream " + std::to_string(stream_id) + "\"");
    }
  }

  void metadata(std::string_view name, int64_t process, int64_t thread, std::string_view args) {
    begin_event();
    buffer_ += "{\"ph\":\"M\",\"name\":\"";
    buffer_ += name;
    field("\",\"ts\":0.000,\"pid\":", process);
    field(",\"tid\":", thread);
    buffer_ += ",\"args\":{";
    buffer_ += args;
    buffer_ += "}}";
  }

  void write_phase(const Phase& phase) {
    const std::string_view kind = kPhaseKindNames[static_cast<size_t>(phase.kind)];
    begin_event();
    buffer_ += "{\"ph\":\"X\",\"cat\":\"";
    buffer_ += kPhaseCategory;
    buffer_ += "\",\"name\":\"";
    buffer_ += kind;
    field(phase.kind == PhaseKind::kDecode ? " step " : " ", phase.index);
    field("\",\"pid\":", kPhaseProcess);
    field(",\"tid\":", 0);
    const bool drawn = times(phase.start_ns, phase.end_ns);
    buffer_ += ",\"args\":{\"kind\":\"";
    buffer_ += kind;
    field("\",\"index\":", phase.index);
    field(",\"tokens\":", phase.tokens);
    end_event(drawn, phase.start_ns, phase.end_ns);
  }

  void write_activity(const Activity& activity) {
    begin_event();
    buffer_ += "{\"ph\":\"X\",\"cat\":\"";
    buffer_ += kCategories[static_cast<size_t>(activity.kind)].name;
    buffer_ += "\",\"name\":";
    buffer_ += names_[activity.name_id];
    field(",\"pid\":", activity.device_id);
    field(",\"tid\":", activity.stream_id);
    const bool drawn = times(activity.start_ns, activity.end_ns);
    field(",\"args\":{\"device\":", activity.device_id);
    field(",\"stream\":", activity.stream_id);
    field(",\"correlation\":", activity.correlation_id);
    field(",\"bytes\":", activity.bytes);
    end_event(drawn, activity.start_ns, activity.end_ns);
  }

  // `ts` and `dur`; false where they do not carry the record's times: out of order, never
  // stamped, or too far from the base for 64 bits.
  bool times(int64_t start_ns, int64_t end_ns) {
    int64_t from_base = 0;
    const bool drawn =
        is_regular(start_ns, end_ns) && !__builtin_sub_overflow(end_ns, base_ns_, &from_base);
    microseconds(",\"ts\":", drawn ? start_ns - base_ns_ : 0);
    microseconds(",\"dur\":", drawn ? end_ns - start_ns : 0);
    return drawn;
  }

  void end_event(bool drawn, int64_t start_ns, int64_t end_ns) {
    if (!drawn) {
      field(",\"raw_start_ns\":", start_ns);
      field(",\"raw_end_ns\":", end_ns);
    }
    buffer_ += "}}";
  }

  void begin_event() {
    constexpr size_t kFlushBytes = 1 << 16;
    if (buffer_.size() > kFlushBytes) flush();
    buffer_ += first_event_ ? "\n" : ",\n";
    first_event_ = false;
  }

  template <class Integer>
  void field(std::string_view prefix, Integer value) {
    std::array<char, 24> digits;  // 20 digits and a sign at most
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    buffer_ += prefix;
    buffer_.append(digits.data(), end);
  }

  void microseconds(std::string_view prefix, int64_t ns) {
    field(prefix, ns / 1000);
    const int64_t rest = ns % 1000;
    buffer_ += {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                static_cast<char>('0' + rest % 10)};
  }

  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

  const Trace& trace_;
  std::ostream& out_;
  std::vector<std::string> names_;  // escaped, by name id
  std::string buffer_;
  int64_t base_ns_ = 0;
  bool first_event_ = true;
};

// What the events mean.
class TraceBuilder {
 public:
  void add(const ChromeEvent& event) {
    if (event.phase == 'M') return;
    if (!use(event)) ++trace_.unused_events;
  }

  Result<Trace> finish(const ChromeHeader& header, const std::filesystem::path& path) && {
    rebase(trace_.activities, header.base_time_ns);
    rebase(trace_.phases, header.base_time_ns);
    trace_.activities.insert(trace_.activities.end(), undrawn_.begin(), undrawn_.end());
    trace_.phases.insert(trace_.phases.end(), undrawn_phases_.begin(), undrawn_phases_.end());
    trace_.quality.dropped = lost_ + std::max<int64_t>(header.dropped_records.value_or(0), 0);
    trace_.quality.unlinked = header.unlinked_records.value_or(count_unlinked());
    trace_.clock = header.clock.empty() ? "realtime" : header.clock;
    trace_.source = header.source.empty() ? path.filename().string() : header.source;
    if (const Status status = trace_.finish(); !status) {
      return fail(status.error().code, status.error().message, path.string());
    }
    return std::move(trace_);
  }

 private:
  bool use(const ChromeEvent& event) {
    if (event.phase != 'X') return false;
    if (event.category == kPhaseCategory) return add_phase(event);
    for (const Category& category : kCategories) {
      if (category.name != event.category) continue;
      add_activity(event, category.kind);
      return true;
    }
    return false;
  }

  void add_activity(const ChromeEvent& event, ActivityKind kind) {
    Activity activity{.kind = kind,
                      .device_id = id(event.device, event.process),
                      .stream_id = id(event.stream, event.thread),
                      .correlation_id = event.correlation.value_or(0),
                      .bytes = event.bytes.value_or(0)};
    if (kind == ActivityKind::kRuntime && activity.correlation_id != 0) {
      launches_.push_back(activity.correlation_id);
    }
    activity.name_id = trace_.names.intern(event.name);
    place(event, activity, trace_.activities, undrawn_);
  }

  bool add_phase(const ChromeEvent& event) {
    Phase phase;
    if (event.index && event.kind == kPhaseKindNames[0]) {
      phase = {PhaseKind::kPrefill, *event.index, event.tokens.value_or(0), 0, 0};
    } else if (event.index && event.kind == kPhaseKindNames[1]) {
      phase = {PhaseKind::kDecode, *event.index, event.tokens.value_or(0), 0, 0};
    } else if (event.name.starts_with(kProfilerStep)) {
      const std::string_view number = std::string_view(event.name).substr(kProfilerStep.size());
      const char* end = number.data() + number.size();
      const auto parsed = std::from_chars(number.data(), end, phase.index);
      if (parsed.ec != std::errc() || parsed.ptr != end) return false;
    } else {
      return false;  // somebody else's annotation
    }
    // More than any step has: a fault of the file, and sums over all steps stay in range.
    constexpr int64_t kMostTokens = 1 << 24;
    if (phase.tokens < 0 || phase.tokens > kMostTokens) {
      ++lost_;
      return true;
    }
    place(event, phase, trace_.phases, undrawn_phases_);
    return true;
  }

  // Gives `record` its times and appends it: to `relative` where the base time is still to be
  // added (it may stand after the events), to `absolute` otherwise.
  template <class Record>
  void place(const ChromeEvent& event, Record record, std::vector<Record>& relative,
             std::vector<Record>& absolute) {
    if (event.start_ns && event.end_ns) {
      record.start_ns = *event.start_ns;
      record.end_ns = *event.end_ns;
      absolute.push_back(record);
      return;
    }
    if (!event.ts_ns || !event.dur_ns ||
        __builtin_add_overflow(*event.ts_ns, *event.dur_ns, &record.end_ns)) {
      ++lost_;
      return;
    }
    record.start_ns = *event.ts_ns;
    relative.push_back(record);
  }

  template <class Record>
  void rebase(std::vector<Record>& records, int64_t base_ns) {
    size_t kept = 0;
    for (Record record : records) {
      if (__builtin_add_overflow(record.start_ns, base_ns, &record.start_ns) ||
          __builtin_add_overflow(record.end_ns, base_ns, &record.end_ns)) {
        ++lost_;
      } else {
        records[kept++] = record;
      }
    }
    records.resize(kept);
  }

  static int32_t id(std::optional<int64_t> own, std::optional<int64_t> track) {
    for (const std::optional<int64_t>& value : {own, track}) {
      if (value && std::in_range<int32_t>(*value)) return static_cast<int32_t>(*value);
    }
    return 0;
  }

  int64_t count_unlinked() {
    std::sort(launches_.begin(), launches_.end());
    return std::count_if(
        trace_.activities.begin(), trace_.activities.end(), [this](const Activity& activity) {
          const bool launched = activity.kind == ActivityKind::kKernel ||
                                activity.kind == ActivityKind::kMemcpy ||
                                activity.kind == ActivityKind::kMemset;
          return launched &&
                 !std::binary_search(launches_.begin(), launches_.end(), activity.correlation_id);
        });
  }

  Trace trace_;
  std::vector<Activity> undrawn_;
  std::vector<Phase> undrawn_phases_;
  std::vector<uint64_t> launches_;  // correlation ids of runtime records
  int64_t lost_ = 0;                // records without usable times
};

}  // namespace

void write_trace_json(const Trace& trace, std::ostream& out) { TraceWriter(trace, out).write(); }

Result<Trace> read_trace_json(const std::filesystem::path& path) {
  TRIPTYCH_TRY(const MappedFile file, MappedFile::open(path));
  TraceBuilder builder;
  TRIPTYCH_TRY(const ChromeHeader header,
               read_chrome_events(file.text(), path.string(),
                                  [&builder](const ChromeEvent& event) { builder.add(event); }));
  return std::move(builder).finish(header, path);
}

}  // namespace triptych
