// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/trace_rows.h"

#include <map>
#include <string>

#include "attribution/breakdown.h"

namespace triptych {

namespace {

void append_records(const Trace& trace, db::TraceRow& row) {
  row.phases.reserve(trace.phases.size());
  for (const Phase& phase : trace.phases) {
    row.phases.push_back({phase.kind == PhaseKind::kPrefill ? "prefill" : "decode", phase.index,
                          phase.tokens, phase.start_ns, phase.end_ns});
  }
  row.activities.reserve(trace.activities.size());
  for (const Activity& activity : trace.activities) {
    row.activities.push_back({std::string(kActivityKindNames[static_cast<size_t>(activity.kind)]),
                              std::string(trace.names[activity.name_id]), activity.device_id,
                              activity.stream_id, activity.start_ns, activity.end_ns,
                              static_cast<int64_t>(activity.correlation_id), activity.bytes});
  }
}

void append_token_times(const Attribution& attribution, db::TraceRow& row) {
  std::map<int32_t, ClassTimes> devices;
  for (const StepBreakdown& step : attribution.steps) {
    if (step.phase.kind != PhaseKind::kDecode) continue;
    ClassTimes& sum = devices[step.device_id];
    for (size_t i = 0; i < kNumTimeClasses; ++i) sum[i] += step.times[i];
  }
  for (const auto& [device_id, times] : devices) {
    for (size_t i = 0; i < kNumTimeClasses; ++i) {
      row.token_times.push_back({device_id, std::string(kTimeClassNames[i]),
                                 std::string(time_group(static_cast<TimeClass>(i))), times[i]});
    }
  }
}

}  // namespace

std::string_view time_group(TimeClass time_class) {
  if (is_compute(time_class)) return "compute";
  if (is_coordination(time_class)) return "coordination";
  return time_class == TimeClass::kMemcpy ? "memcpy" : "unclassified";
}

Result<db::TraceRow> make_trace_row(int64_t cell_id, const Trace& trace,
                                    const Classifier& classifier) {
  db::TraceRow row;
  row.cell_id = cell_id;
  row.source = trace.source;
  row.clock = trace.clock;
  row.dropped = trace.quality.dropped;
  row.zero_time = trace.quality.zero_time;
  row.inverted = trace.quality.inverted;
  row.unlinked = trace.quality.unlinked;
  append_records(trace, row);
  for (const Activity& activity : trace.activities) {
    const auto time_class = classifier.classify(activity.kind, trace.names[activity.name_id]);
    if (time_class == TimeClass::kUnclassified) ++row.unclassified;
  }
  if (row.dropped > 0) return row;
  TRIPTYCH_TRY(const Attribution attribution, attribute(trace, classifier));
  const Attribution::DecodeTotal total = attribution.decode_total();
  row.window_ns = total.window_ns;
  row.tokens = total.tokens;
  row.steps = total.steps;
  append_token_times(attribution, row);
  return row;
}

}  // namespace triptych
