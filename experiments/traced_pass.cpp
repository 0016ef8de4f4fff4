// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/traced_pass.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "attribution/classify.h"
#include "base/strings.h"
#include "experiments/trace_rows.h"
#include "profiler/host_tracer.h"
#include "profiler/trace_json.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

// What a trace of thousands of steps takes; a larger one is a mistake that would fill the memory.
constexpr uintmax_t kMostBytes = uintmax_t{1} << 30;

/// A folder for files of an engine, gone with this object whatever the engine left in it.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> make() {
    std::error_code error;
    std::string folder = (fs::temp_directory_path(error) / "triptych-trace-XXXXXX").string();
    if (error) return fail(ErrorCode::kIo, error.message(), "the folder of temporary files");
    if (::mkdtemp(folder.data()) == nullptr) {
      return fail(ErrorCode::kIo, std::strerror(errno), folder);
    }
    return TemporaryFolder(folder);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;  // a destructor has nobody to tell
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

std::vector<Request> first_wave(const Engine& engine, std::span<const Request> requests,
                                int64_t steps) {
  const auto wave = std::min(requests.size(),
                             static_cast<size_t>(std::max<int64_t>(engine.options().max_batch, 1)));
  std::vector<Request> first(requests.begin(), requests.begin() + static_cast<ptrdiff_t>(wave));
  for (Request& request : first) {
    request.max_new_tokens = std::min(request.max_new_tokens, steps + 1);
  }
  return first;
}

/// Errors name no path: the folder is gone when they are read.
Unexpected without_path(const Error& error) {
  return fail(error.code, "the engine's trace: " + error.message);
}

Result<Trace> read_written(const fs::path& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error) return fail(ErrorCode::kNotFound, "it wrote no trace, although it says so");
  if (bytes > kMostBytes) {
    return fail(ErrorCode::kCorrupt, str_format("%.1f GiB, expected at most %.0f",
                                                static_cast<double>(bytes) / (1 << 30),
                                                static_cast<double>(kMostBytes) / (1 << 30)));
  }
  return read_trace_json(path);
}

Result<Trace> written_trace(Engine& engine, std::span<const Request> requests, int64_t steps) {
  TRIPTYCH_TRY(const TemporaryFolder folder, TemporaryFolder::make());
  const TraceFile file{.path = folder.path() / "trace.json", .steps = steps};
  TRIPTYCH_TRY(const GenerateResult result, engine.generate_to_file(requests, file));
  Result<Trace> trace = read_written(file.path);
  if (!trace) return without_path(trace.error());
  size_t longest = 1;
  for (const RequestResult& request : result.requests) {
    longest = std::max(longest, request.tokens.size());
  }
  const Status matches = check_written_trace(*trace, static_cast<int64_t>(longest) - 1);
  if (!matches) return without_path(matches.error());
  return trace;
}

Result<Trace> recorded_trace(Engine& engine, std::span<const Request> requests) {
  HostTracer tracer;
  TRIPTYCH_TRY(const GenerateResult result, engine.generate(requests, &tracer));
  return tracer.take();
}

/// ns of the records of devices, and how many of them lie in phases.
struct DeviceTime {
  double all_ns = 0;
  double in_phases_ns = 0;
};

DeviceTime device_time(const Trace& trace) {
  DeviceTime time;
  size_t first = 0;  // phases and activities are ordered by their start
  for (const Activity& activity : trace.activities) {
    if (activity.kind == ActivityKind::kRuntime || activity.end_ns <= activity.start_ns) continue;
    time.all_ns += static_cast<double>(activity.end_ns) - static_cast<double>(activity.start_ns);
    while (first < trace.phases.size() && trace.phases[first].end_ns <= activity.start_ns) ++first;
    for (size_t i = first; i < trace.phases.size(); ++i) {
      const Phase& phase = trace.phases[i];
      if (phase.start_ns >= activity.end_ns) break;
      time.in_phases_ns += static_cast<double>(std::min(phase.end_ns, activity.end_ns) -
                                               std::max(phase.start_ns, activity.start_ns));
    }
  }
  return time;
}

}  // namespace

bool is_traceable(const Engine& engine) { return engine.can_trace() || engine.writes_traces(); }

Status check_written_trace(const Trace& trace, int64_t steps) {
  const auto wrong = [](std::string message) {
    return fail(ErrorCode::kCorrupt, std::move(message));
  };
  int64_t decode_steps = 0;
  for (const Phase& phase : trace.phases) {
    if (phase.kind != PhaseKind::kDecode) continue;
    ++decode_steps;
    if (phase.tokens == 0) {
      return wrong(str_format("decode step %lld says no number of tokens",
                              static_cast<long long>(phase.index)));
    }
  }
  if (decode_steps == 0 && steps > 0) return wrong("it has no decode step");
  if (decode_steps > steps) {
    return wrong(str_format("it has %lld decode steps, the pass had %lld",
                            static_cast<long long>(decode_steps), static_cast<long long>(steps)));
  }
  const DeviceTime time = device_time(trace);
  if (time.all_ns <= 0) return wrong("it has no record of a device");
  if (time.in_phases_ns < time.all_ns / 2) {
    return wrong(str_format("%.0f %% of its device time lies outside of its phases: another clock",
                            100 * (1 - time.in_phases_ns / time.all_ns)));
  }
  return {};
}

Result<db::TraceRow> traced_pass(Engine& engine, std::span<const Request> requests, int64_t steps,
                                 int64_t cell_id) {
  const std::vector<Request> wave = first_wave(engine, requests, steps);
  TRIPTYCH_TRY(const Trace trace, engine.writes_traces() ? written_trace(engine, wave, steps)
                                                         : recorded_trace(engine, wave));
  return make_trace_row(cell_id, trace, Classifier::built_in());
}

}  // namespace triptych
