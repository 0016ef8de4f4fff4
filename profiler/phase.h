// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What an engine tells a profiler: phases and operations. The only profiler header engines see.
#pragma once

#include <cstdint>
#include <string_view>

namespace triptych {

/// What one slice of a request is for.
enum class PhaseKind : uint8_t {
  kPrefill,  ///< Reads prompt tokens; ends when the first output token exists.
  kDecode,   ///< One decode step: one token for each sequence of the batch.
};

/// The kind of work an operation record stands for; the names that users see are in activity.h.
enum class ActivityKind : uint8_t {
  kKernel,  ///< Arithmetic on a device (on the CPU: the body of an operation).
  kMemcpy,  ///< Moves bytes and computes nothing (KV concatenation, logits to the host).
  kMemset,
  kSync,        ///< Waiting for a peer, a stream or a worker thread.
  kRuntime,     ///< Host-side API call or bookkeeping (allocation, scheduling).
  kCollective,  ///< Communication between ranks.
};

/// One finished operation. Times are steady-clock ns (base/units.h now_ns), half-open.
struct OperationRecord {
  ActivityKind kind = ActivityKind::kKernel;
  std::string_view name;  ///< Must outlive the call only.
  int32_t stream_id = 0;  ///< Thread or CUDA stream the operation ran on.
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t bytes = 0;  ///< Bytes that had to move (kernel cost model); 0 = unknown.
};

/// Receives what happens during a traced pass. A timed pass has no sink at all: engines hold a
/// pointer that is null then, and test it once per operation.
class ActivitySink {
 public:
  virtual ~ActivitySink() = default;
  /// Opens a phase. `index` counts phases of one kind from 0; `tokens` is how many tokens it
  /// reads (prefill) or produces (decode: the batch size). Phases do not nest.
  virtual void begin_phase(PhaseKind kind, int64_t index, int64_t tokens, int64_t start_ns) = 0;
  virtual void end_phase(int64_t end_ns) = 0;
  virtual void record(const OperationRecord& operation) = 0;
  /// The sink for records of another device (a rank of a parallel engine); 0 is this one. One
  /// thread may record to each at the same time; phases are told to device 0 only. Called from the
  /// thread of device 0, before the others record; the sink lives as long as this one.
  [[nodiscard]] virtual ActivitySink& device(int32_t device_id) = 0;
};

}  // namespace triptych
