// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Trace: activities, phases and how good the recording was. Plain data, no CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "profiler/activity.h"

namespace triptych {

/// Names stored once. Ids are dense and stable.
class NameTable {
 public:
  uint32_t intern(std::string_view name);
  [[nodiscard]] std::string_view operator[](uint32_t id) const { return names_[id]; }
  [[nodiscard]] size_t size() const { return names_.size(); }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> ids_;
};

/// What was lost or odd while recording: data, stored with every run, never only a log line.
struct RecordQuality {
  int64_t dropped = 0;    ///< Records the collector could not keep.
  int64_t zero_time = 0;  ///< start == end == 0.
  int64_t inverted = 0;   ///< end < start; excluded from the time classes.
  int64_t unlinked = 0;   ///< Device record without a launch record.
};

struct Trace {
  NameTable names;
  std::vector<Activity> activities;  ///< Ordered by start_ns after finish().
  std::vector<Phase> phases;
  RecordQuality quality;
  std::string clock = "steady";      ///< "steady", "realtime", "device": where ns come from.
  std::string source;                ///< "host_tracer", "cupti", a file name.

  /// Sorts activities by (start, -end) and phases by start, and counts zero-time and inverted
  /// records. Errors: kCorrupt if phases overlap.
  [[nodiscard]] Status finish();
};

}  // namespace triptych
