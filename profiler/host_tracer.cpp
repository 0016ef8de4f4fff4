// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/host_tracer.h"

#include <utility>
#include <vector>

namespace triptych {

namespace {

Activity make_activity(const OperationRecord& operation, int32_t device_id, NameTable& names) {
  return {.kind = operation.kind,
          .device_id = device_id,
          .stream_id = operation.stream_id,
          .name_id = names.intern(operation.name),
          .start_ns = operation.start_ns,
          .end_ns = operation.end_ns,
          .bytes = operation.bytes};
}

}  // namespace

/// Records of one device under names of its own, so that its thread shares nothing.
class HostTracer::Device final : public ActivitySink {
 public:
  Device(int32_t device_id, size_t expected_activities) : device_id_(device_id) {
    activities_.reserve(expected_activities);
  }
  void begin_phase(PhaseKind, int64_t, int64_t, int64_t) override { refuse_phase(); }
  void end_phase(int64_t) override { refuse_phase(); }
  void record(const OperationRecord& operation) override {
    activities_.push_back(make_activity(operation, device_id_, names_));
  }
  ActivitySink& device(int32_t device_id) override {
    TRIPTYCH_CHECK(device_id == device_id_, "devices are asked for at device 0");
    return *this;
  }

  /// Appends the records to `trace` and forgets them.
  void move_to(Trace& trace) {
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; id < names_.size(); ++id) ids.push_back(trace.names.intern(names_[id]));
    for (Activity& activity : activities_) {
      activity.name_id = ids[activity.name_id];
      trace.activities.push_back(activity);
    }
    activities_.clear();
    names_ = {};
  }

 private:
  static void refuse_phase() { TRIPTYCH_CHECK(false, "phases are told to device 0"); }

  int32_t device_id_;
  NameTable names_;
  std::vector<Activity> activities_;
};

HostTracer::HostTracer(size_t expected_activities) : expected_activities_(expected_activities) {
  trace_.activities.reserve(expected_activities);
}

HostTracer::~HostTracer() = default;

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
  trace_.activities.push_back(make_activity(operation, 0, trace_.names));
}

ActivitySink& HostTracer::device(int32_t device_id) {
  TRIPTYCH_CHECK(device_id >= 0, "devices are numbered from 0");
  if (device_id == 0) return *this;
  std::unique_ptr<Device>& device = devices_[device_id];
  if (device == nullptr) device = std::make_unique<Device>(device_id, expected_activities_);
  return *device;
}

Result<Trace> HostTracer::take() {
  TRIPTYCH_CHECK(!phase_open_, "a phase is still open");
  Trace trace = std::exchange(trace_, Trace{});
  trace.clock = "steady";
  trace.source = "host_tracer";
  for (const auto& [id, device] : devices_) device->move_to(trace);
  TRIPTYCH_RETURN_IF_ERROR(trace.finish());
  return trace;
}

}  // namespace triptych
