// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/breakdown.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <span>

#include "attribution/interval_set.h"
#include "base/strings.h"

namespace triptych {
namespace {

// 104 days. A longer trace has a broken clock, and sums over fewer than 1024 devices stay in range.
constexpr int64_t kLongestSpanNs = int64_t{1} << 53;
constexpr size_t kMostDevices = 1023;
constexpr size_t kMostRows = 10'000'000;  // of steps: 1.5 GB; eight devices for a million steps

struct DeviceRecords {
  std::array<std::vector<TimeInterval>, kNumTimeClasses> by_class;
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  int64_t last_ns = std::numeric_limits<int64_t>::min();
};

struct Collected {
  std::map<int32_t, DeviceRecords> devices;
  std::vector<std::pair<std::string, int64_t>> unclassified;
  int64_t zero_time = 0;
  int64_t inverted = 0;
};

// Asks the rules once for each name and kind, however many records carry them.
class CachedClassifier {
 public:
  CachedClassifier(const Classifier& classifier, const NameTable& names)
      : classifier_(classifier), names_(names), known_(names.size() * kActivityKindNames.size()) {}

  std::optional<TimeClass> operator()(const Activity& activity) {
    TRIPTYCH_CHECK(activity.name_id < names_.size(), "activity without a name");
    const size_t slot =
        activity.name_id * kActivityKindNames.size() + static_cast<size_t>(activity.kind);
    if (!known_[slot]) {
      known_[slot] = classifier_.classify(activity.kind, names_[activity.name_id]);
    }
    return *known_[slot];
  }

 private:
  const Classifier& classifier_;
  const NameTable& names_;
  std::vector<std::optional<std::optional<TimeClass>>> known_;
};

std::vector<std::pair<std::string, int64_t>> longest_first(const NameTable& names,
                                                           std::span<const int64_t> totals) {
  std::vector<std::pair<std::string, int64_t>> rows;
  for (size_t id = 0; id < totals.size(); ++id) {
    if (totals[id] > 0) rows.emplace_back(names[static_cast<uint32_t>(id)], totals[id]);
  }
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return rows;
}

Collected collect(const Trace& trace, const Classifier& classifier) {
  Collected collected;
  CachedClassifier class_of(classifier, trace.names);
  std::vector<int64_t> unclassified(trace.names.size());
  for (const Activity& activity : trace.activities) {
    if (activity.start_ns == 0 && activity.end_ns == 0) ++collected.zero_time;
    if (activity.end_ns < activity.start_ns) ++collected.inverted;
    if (activity.end_ns <= activity.start_ns) continue;
    const std::optional<TimeClass> time_class = class_of(activity);
    if (!time_class) continue;
    DeviceRecords& device = collected.devices[activity.device_id];
    device.by_class[static_cast<size_t>(*time_class)].push_back(
        {activity.start_ns, activity.end_ns});
    device.first_ns = std::min(device.first_ns, activity.start_ns);
    device.last_ns = std::max(device.last_ns, activity.end_ns);
    if (*time_class == TimeClass::kUnclassified) {
      int64_t& total = unclassified[activity.name_id];
      int64_t duration = 0;
      // Saturates: the span check that rules this out comes later, with all records seen.
      if (__builtin_sub_overflow(activity.end_ns, activity.start_ns, &duration) ||
          __builtin_add_overflow(total, duration, &total)) {
        total = std::numeric_limits<int64_t>::max();
      }
    }
  }
  collected.unclassified = longest_first(trace.names, unclassified);
  return collected;
}

Result<std::vector<Phase>> ordered_phases(const Trace& trace) {
  // Through finish(), so that what a legal list of phases is stands in one place.
  Trace phases_only;
  phases_only.phases = trace.phases;
  TRIPTYCH_RETURN_IF_ERROR(phases_only.finish());
  return std::move(phases_only.phases);
}

// Each phase up to the start of the next one; the last to its own end.
std::vector<TimeInterval> windows_of(std::span<const Phase> phases) {
  std::vector<TimeInterval> windows;
  for (size_t i = 0; i < phases.size(); ++i) {
    const bool last = i + 1 == phases.size();
    windows.push_back({phases[i].start_ns, last ? phases[i].end_ns : phases[i + 1].start_ns});
  }
  return windows;
}

Result<TimeInterval> device_window(const DeviceRecords& device, std::span<const Phase> phases) {
  TimeInterval window{device.first_ns, device.last_ns};
  if (!phases.empty()) {
    window.start_ns = std::min(window.start_ns, phases.front().start_ns);
    window.end_ns = std::max(window.end_ns, phases.back().end_ns);
  }
  int64_t length = 0;
  if (__builtin_sub_overflow(window.end_ns, window.start_ns, &length) || length > kLongestSpanNs) {
    return fail(ErrorCode::kCorrupt, "the trace spans more than 104 days: its clock is broken");
  }
  return window;
}

// Splits `window` into one set a class: records by priority, then what no record covers.
std::array<IntervalSet, kNumTimeClasses> exclusive_sets(DeviceRecords device, TimeInterval window,
                                                        const IntervalSet& in_phases) {
  std::array<IntervalSet, kNumTimeClasses> sets;
  IntervalSet covered;
  for (size_t c = 0; c < kNumTimeClasses; ++c) {
    if (device.by_class[c].empty()) continue;
    const IntervalSet own(std::move(device.by_class[c]));
    sets[c] = own.subtract(covered);
    covered = covered.unite(own);
  }
  const IntervalSet idle = IntervalSet({window}).subtract(covered);
  IntervalSet& launch_gap = sets[static_cast<size_t>(TimeClass::kLaunchGap)];
  IntervalSet& host_wait = sets[static_cast<size_t>(TimeClass::kHostWait)];
  launch_gap = launch_gap.unite(idle.intersect(in_phases));
  host_wait = host_wait.unite(idle.subtract(in_phases));
  return sets;
}

// ns of `set` inside each of `windows`, which are sorted and disjoint: one merge.
std::vector<int64_t> lengths_in(const IntervalSet& set, std::span<const TimeInterval> windows) {
  std::vector<int64_t> lengths(windows.size());
  size_t first = 0;
  for (const TimeInterval& interval : set.intervals()) {
    while (first < windows.size() && windows[first].end_ns <= interval.start_ns) ++first;
    for (size_t w = first; w < windows.size() && windows[w].start_ns < interval.end_ns; ++w) {
      lengths[w] += std::min(interval.end_ns, windows[w].end_ns) -
                    std::max(interval.start_ns, windows[w].start_ns);
      first = w;  // may also hold the start of the next interval
    }
  }
  return lengths;
}

void check_partition(const ClassTimes& times, int64_t start_ns, int64_t end_ns) {
  TRIPTYCH_CHECK(std::accumulate(times.begin(), times.end(), int64_t{0}) == end_ns - start_ns,
                 "time classes do not sum to their window");
}

}  // namespace

Result<Attribution> attribute(const Trace& trace, const Classifier& classifier,
                              bool allow_dropped) {
  if (trace.quality.dropped > 0 && !allow_dropped) {
    return fail(ErrorCode::kCorrupt,
                str_format("%lld records were dropped; a trace with holes cannot be divided",
                           static_cast<long long>(trace.quality.dropped)),
                trace.source);
  }
  TRIPTYCH_TRY(const std::vector<Phase> phases, ordered_phases(trace));
  Collected collected = collect(trace, classifier);

  Attribution result;
  result.unclassified = std::move(collected.unclassified);
  result.quality = trace.quality;
  result.quality.zero_time = collected.zero_time;
  result.quality.inverted = collected.inverted;

  const std::vector<TimeInterval> windows = windows_of(phases);
  std::vector<TimeInterval> spans;
  for (const Phase& phase : phases) spans.push_back({phase.start_ns, phase.end_ns});
  const IntervalSet in_phases(std::move(spans));

  const size_t num_devices = collected.devices.size();
  if (num_devices > kMostDevices || phases.size() * num_devices > kMostRows) {
    return fail(ErrorCode::kCorrupt,
                str_format("%zu devices and %zu phases; at most %zu devices and %zu pairs of both "
                           "are divided",
                           num_devices, phases.size(), kMostDevices, kMostRows),
                trace.source);
  }
  result.steps.resize(phases.size() * num_devices);
  for (auto& [device_id, records] : collected.devices) {
    TRIPTYCH_TRY(const TimeInterval window, device_window(records, phases));
    const auto sets = exclusive_sets(std::move(records), window, in_phases);

    const size_t column = result.devices.size();
    DeviceBreakdown whole{device_id, window.start_ns, window.end_ns, {}};
    for (size_t i = 0; i < phases.size(); ++i) {
      result.steps[i * num_devices + column] = {
          phases[i], device_id, windows[i].start_ns, windows[i].end_ns, {}};
    }
    for (size_t c = 0; c < kNumTimeClasses; ++c) {
      whole.times[c] = sets[c].length_ns();
      const std::vector<int64_t> lengths = lengths_in(sets[c], windows);
      for (size_t i = 0; i < phases.size(); ++i) {
        result.steps[i * num_devices + column].times[c] = lengths[i];
      }
    }
    check_partition(whole.times, whole.start_ns, whole.end_ns);
    result.devices.push_back(whole);
  }
  for (const StepBreakdown& step : result.steps) {
    check_partition(step.times, step.start_ns, step.end_ns);
  }
  return result;
}

Attribution::DecodeTotal Attribution::decode_total() const {
  DecodeTotal total;
  for (const StepBreakdown& step : steps) {
    if (step.phase.kind != PhaseKind::kDecode) continue;
    for (size_t c = 0; c < kNumTimeClasses; ++c) total.times[c] += step.times[c];
    total.window_ns += step.end_ns - step.start_ns;
    total.tokens += step.phase.tokens;
    ++total.steps;
  }
  return total;
}

}  // namespace triptych
