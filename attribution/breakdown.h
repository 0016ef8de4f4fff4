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

/// One window of one device: the phase and the gap before the next phase of its kind.
struct StepBreakdown {
  Phase phase;
  int32_t device_id = 0;
  int64_t start_ns = 0;  ///< Window [start_ns, end_ns): phase start to next phase start (or end).
  int64_t end_ns = 0;
  ClassTimes times{};    ///< Sums to end_ns - start_ns exactly.
};

struct DeviceBreakdown {
  int32_t device_id = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  ClassTimes times{};
};

struct Attribution {
  std::vector<DeviceBreakdown> devices;  ///< Whole trace, one row a device.
  std::vector<StepBreakdown> steps;      ///< One row a phase and device, in order.
  /// Names of kUnclassified records with their exclusive-or-not total time, longest first.
  std::vector<std::pair<std::string, int64_t>> unclassified;
  RecordQuality quality;

  /// Sum over the decode steps (all devices), and the tokens they produced (times devices).
  struct DecodeTotal {
    ClassTimes times{};
    int64_t window_ns = 0;
    int64_t tokens = 0;
    int64_t steps = 0;
  };
  [[nodiscard]] DecodeTotal decode_total() const;
};

/// Errors: kCorrupt if quality.dropped > 0 and !allow_dropped (a trace with holes cannot be
/// divided). A trace without device records gives an empty Attribution.
[[nodiscard]] Result<Attribution> attribute(const Trace& trace, const Classifier& classifier,
                                            bool allow_dropped = false);

}  // namespace triptych
