// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// HostTracer: an ActivitySink that fills a Trace on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "profiler/phase.h"
#include "profiler/trace.h"

namespace triptych {

/// For one recording thread a device: the engine's scheduler, which also times its parallel
/// operations, and the thread of every other rank.
class HostTracer final : public ActivitySink {
 public:
  /// Room for `expected_activities` of each device is taken up front, so that recording does not
  /// reallocate.
  explicit HostTracer(size_t expected_activities = 1 << 16);
  ~HostTracer() override;
  /// Precondition: no phase is open.
  void begin_phase(PhaseKind kind, int64_t index, int64_t tokens, int64_t start_ns) override;
  /// Precondition: a phase is open.
  void end_phase(int64_t end_ns) override;
  void record(const OperationRecord& operation) override;
  /// Precondition: device_id >= 0.
  ActivitySink& device(int32_t device_id) override;

  /// The finished trace of all devices, clock "steady"; the tracer is empty afterwards.
  /// Preconditions: no phase is open, no thread records. Errors: kCorrupt as Trace::finish().
  [[nodiscard]] Result<Trace> take();

 private:
  class Device;
  size_t expected_activities_;
  Trace trace_;
  std::map<int32_t, std::unique_ptr<Device>> devices_;  // all but 0
  bool phase_open_ = false;
};

}  // namespace triptych
