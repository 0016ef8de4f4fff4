// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// attribute(): a trace becomes exclusive time classes that sum to the window, to the nanosecond.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attribution/classify.h"
#include "attribution/time_class.h"
#include "base/result.h"
#include "profiler/trace.h"

namespace triptych {

using ClassTimes = std::array<int64_t, kNumTimeClasses>;  ///< ns, indexed by TimeClass.

/// One window of one device: the phase and the gap before the next phase.
struct StepBreakdown {
  Phase phase;
  int32_t device_id = 0;
  int64_t start_ns = 0;  ///< The phase's start.
  int64_t end_ns = 0;    ///< The next phase's start; for the last phase its own end.
  ClassTimes times{};    ///< Sums to end_ns - start_ns exactly.
};

/// One device from the first phase or record to the last, whichever is earlier and later.
struct DeviceBreakdown {
  int32_t device_id = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  ClassTimes times{};
};

struct Attribution {
  std::vector<DeviceBreakdown> devices;  ///< Whole trace, one row a device.
  std::vector<StepBreakdown> steps;      ///< One row a phase and device, phase by phase.
  /// Names of kUnclassified records with the sum of their durations (hidden or exposed), longest
  /// first.
  std::vector<std::pair<std::string, int64_t>> unclassified;
  RecordQuality quality;

  /// Sum over the decode rows. `tokens` and `steps` count each device, so that times / tokens is
  /// the time of one token on one device.
  struct DecodeTotal {
    ClassTimes times{};
    int64_t window_ns = 0;
    int64_t tokens = 0;
    int64_t steps = 0;
  };
  [[nodiscard]] DecodeTotal decode_total() const;
};

/// Divides each window among the classes, in integer ns, exactly. Where records overlap the class
/// that comes first in TimeClass owns the time. Time that no record covers is kLaunchGap inside a
/// phase and kHostWait outside. A record that straddles windows counts in each with its part there.
/// Zero-time and inverted records are left out and counted in `quality`. The order of
/// trace.activities does not matter; O(n log n), O(n) when they are sorted.
/// Errors: kCorrupt if quality.dropped > 0 and !allow_dropped (a trace with holes cannot be
/// divided), if phases overlap, if the trace spans more than 104 days, or has more than 1023
/// devices or 10^7 pairs of a device and a phase. A trace without device records gives no rows; one
/// without phases gives no steps.
[[nodiscard]] Result<Attribution> attribute(const Trace& trace, const Classifier& classifier,
                                            bool allow_dropped = false);

}  // namespace triptych
