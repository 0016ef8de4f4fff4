// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Trace: activities, phases and how good the recording was. Plain data, no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "profiler/activity.h"

namespace triptych {

/// Names stored once. Ids are dense from 0 and stable.
class NameTable {
 public:
  /// The id of `name`, new if it was not seen before. No allocation for a known name.
  uint32_t intern(std::string_view name);
  [[nodiscard]] std::string_view operator[](uint32_t id) const { return names_[id]; }
  [[nodiscard]] size_t size() const { return names_.size(); }

 private:
  // Lets find() take a string_view: a tracer looks names up while the clock of a pass runs.
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> ids_;
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
  /// Events of a file that are neither a record of a device nor a phase (operators of the host,
  /// flows, counters, annotations of others), without the metadata that names tracks.
  int64_t unused_events = 0;
  std::string clock = "steady";  ///< "steady", "realtime", "device": where ns come from.
  std::string source;            ///< "host_tracer", "cupti", a file name.

  /// Sorts activities by (start, -end) and phases by start, and counts zero-time and inverted
  /// records anew (so that a second call changes nothing). Records that tie keep their order.
  /// Errors: kCorrupt if phases overlap or one ends before it starts.
  [[nodiscard]] Status finish();
};

}  // namespace triptych
