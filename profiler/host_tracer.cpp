// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/host_tracer.h"

#include <utility>

namespace triptych {

HostTracer::HostTracer(size_t expected_activities) {
  trace_.activities.reserve(expected_activities);
}

void HostTracer::begin_phase(PhaseKind kind, int64_t index, int64_t tokens, int64_t start_ns) {
  TRIPTYCH_CHECK(!phase_open_, "phases do not nest");
  phase_open_ = true;
  trace_.phases.push_back(
      {.kind = kind, .index = index, .tokens = tokens, .start_ns = start_ns, .end_ns = start_ns});
}

void HostTracer::end_phase(int64_t end_ns) {
  TRIPTYCH_CHECK(phase_open_, "no phase is open");
  phase_open_ = false;
  trace_.phases.back().end_ns = end_ns;
}

void HostTracer::record(const OperationRecord& operation) {
  trace_.activities.push_back({.kind = operation.kind,
                               .stream_id = operation.stream_id,
                               .name_id = trace_.names.intern(operation.name),
                               .start_ns = operation.start_ns,
                               .end_ns = operation.end_ns,
                               .bytes = operation.bytes});
}

Result<Trace> HostTracer::take() {
  TRIPTYCH_CHECK(!phase_open_, "a phase is still open");
  Trace trace = std::exchange(trace_, Trace{});
  trace.clock = "steady";
  trace.source = "host_tracer";
  TRIPTYCH_RETURN_IF_ERROR(trace.finish());
  return trace;
}

}  // namespace triptych
