// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Activity: one record of a trace, from whatever collector or file it came.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "profiler/phase.h"

namespace triptych {

inline constexpr std::array<std::string_view, 6> kActivityKindNames = {
    "kernel", "memcpy", "memset", "sync", "runtime", "collective"};

/// Times are integer ns on the trace's clock, half-open [start_ns, end_ns).
struct Activity {
  ActivityKind kind = ActivityKind::kKernel;
  int32_t device_id = 0;  ///< CPU traces: 0 is the engine's CPU device.
  int32_t stream_id = 0;
  uint32_t name_id = 0;  ///< Index into Trace::names.
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint64_t correlation_id = 0;  ///< Joins a launch with what it launched; 0 = none.
  int64_t bytes = 0;            ///< 0 = unknown.
};

/// A phase as it was traced. Phases of a trace do not overlap and are ordered by start.
struct Phase {
  PhaseKind kind = PhaseKind::kDecode;
  int64_t index = 0;
  int64_t tokens = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

}  // namespace triptych
