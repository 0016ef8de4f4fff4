// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// HostTracer: an ActivitySink that fills a Trace on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/phase.h"
#include "profiler/trace.h"

namespace triptych {

/// For one recording thread: the engine's scheduler, which also times its parallel operations.
class HostTracer final : public ActivitySink {
 public:
  /// Room for `expected_activities` is taken up front, so that recording does not reallocate.
  explicit HostTracer(size_t expected_activities = 1 << 16);
  /// Precondition: no phase is open.
  void begin_phase(PhaseKind kind, int64_t index, int64_t tokens, int64_t start_ns) override;
  /// Precondition: a phase is open.
  void end_phase(int64_t end_ns) override;
  void record(const OperationRecord& operation) override;

  /// The finished trace, clock "steady"; the tracer is empty afterwards. Precondition: no phase is
  /// open. Errors: kCorrupt as Trace::finish().
  [[nodiscard]] Result<Trace> take();

 private:
  Trace trace_;
  bool phase_open_ = false;
};

}  // namespace triptych
