// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/trace.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/strings.h"

namespace triptych {

uint32_t NameTable::intern(std::string_view name) {
  if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
  TRIPTYCH_CHECK(names_.size() < std::numeric_limits<uint32_t>::max(), "more names than ids");
  const auto id = static_cast<uint32_t>(names_.size());
  names_.emplace_back(name);
  ids_.emplace(names_.back(), id);
  return id;
}

Status Trace::finish() {
  const auto earlier = [](const Activity& a, const Activity& b) {
    // Longest first among equal starts: a record comes before what it encloses.
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
  };
  // A host tracer records in order already, and a stable sort copies its input.
  if (!std::is_sorted(activities.begin(), activities.end(), earlier)) {
    std::stable_sort(activities.begin(), activities.end(), earlier);
  }
  // Empty phases may share their start; index and kind then give them one order.
  std::sort(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) {
    return std::tie(a.start_ns, a.end_ns, a.kind, a.index) <
           std::tie(b.start_ns, b.end_ns, b.kind, b.index);
  });
  quality.zero_time = 0;
  quality.inverted = 0;
  for (const Activity& activity : activities) {
    if (activity.start_ns == 0 && activity.end_ns == 0) ++quality.zero_time;
    if (activity.end_ns < activity.start_ns) ++quality.inverted;
  }
  for (size_t i = 0; i < phases.size(); ++i) {
    const Phase& phase = phases[i];
    const auto number = static_cast<long long>(phase.index);
    if (phase.end_ns < phase.start_ns) {
      return fail(ErrorCode::kCorrupt, str_format("phase %lld ends before it starts", number));
    }
    if (i > 0 && phases[i - 1].end_ns > phase.start_ns) {
      return fail(ErrorCode::kCorrupt,
                  str_format("phase %lld starts before the phase in front of it ends", number));
    }
  }
  return {};
}

}  // namespace triptych
