// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a Chrome or Kineto JSON trace and its attribution. The classes sum to each window in
// integer ns, and what is written from a trace reads as the same trace.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <sstream>
#include <string>

#include "attribution/breakdown.h"
#include "profiler/trace_json.h"
#include "tests/fuzz/input_file.h"

namespace triptych {
namespace {

InputFile& input_file() {
  static InputFile file;
  return file;
}

template <class Breakdown>
void check_sum(const Breakdown& row) {
  for (const int64_t ns : row.times) TRIPTYCH_CHECK(ns >= 0, "a class with negative time");
  TRIPTYCH_CHECK(
      std::accumulate(row.times.begin(), row.times.end(), int64_t{0}) == row.end_ns - row.start_ns,
      "the classes do not sum to the window");
}

void check_attribution(const Trace& trace) {
  const auto attribution = attribute(trace, Classifier::built_in(), true);
  if (!attribution) return;
  for (const DeviceBreakdown& device : attribution->devices) check_sum(device);
  for (const StepBreakdown& step : attribution->steps) check_sum(step);
  const auto total = attribution->decode_total();
  TRIPTYCH_CHECK(
      std::accumulate(total.times.begin(), total.times.end(), int64_t{0}) == total.window_ns,
      "the classes do not sum to the decode steps");
}

void check_same(const Trace& a, const Trace& b) {
  TRIPTYCH_CHECK(a.activities.size() == b.activities.size() && a.phases.size() == b.phases.size(),
                 "records got lost");
  for (size_t i = 0; i < a.activities.size(); ++i) {
    const Activity& x = a.activities[i];
    const Activity& y = b.activities[i];
    TRIPTYCH_CHECK(x.kind == y.kind && x.device_id == y.device_id && x.stream_id == y.stream_id &&
                       x.start_ns == y.start_ns && x.end_ns == y.end_ns && x.bytes == y.bytes &&
                       x.correlation_id == y.correlation_id,
                   "another record came back");
    TRIPTYCH_CHECK(a.names[x.name_id] == b.names[y.name_id], "another name came back");
  }
  for (size_t i = 0; i < a.phases.size(); ++i) {
    const Phase& x = a.phases[i];
    const Phase& y = b.phases[i];
    TRIPTYCH_CHECK(x.kind == y.kind && x.index == y.index && x.tokens == y.tokens &&
                       x.start_ns == y.start_ns && x.end_ns == y.end_ns,
                   "another phase came back");
  }
  TRIPTYCH_CHECK(
      a.quality.dropped == b.quality.dropped && a.quality.unlinked == b.quality.unlinked &&
          a.quality.inverted == b.quality.inverted && a.quality.zero_time == b.quality.zero_time,
      "another quality came back");
}

}  // namespace
}  // namespace triptych

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triptych;
  input_file().write(std::span(data, size));
  const auto trace = read_trace_json(input_file().path());
  if (!trace) return 0;
  check_attribution(*trace);
  std::ostringstream out;
  write_trace_json(*trace, out);
  const std::string text = out.str();
  input_file().write(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  const auto again = read_trace_json(input_file().path());
  TRIPTYCH_CHECK(again.has_value(), again.error().to_string());
  check_same(*trace, *again);
  return 0;
}
