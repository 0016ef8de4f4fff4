// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/interval_set.h"

#include <algorithm>
#include <utility>

namespace triptych {
namespace {

bool starts_earlier(const TimeInterval& a, const TimeInterval& b) {
  return a.start_ns < b.start_ns;
}

}  // namespace

IntervalSet::IntervalSet(std::vector<TimeInterval> intervals) {
  if (!std::is_sorted(intervals.begin(), intervals.end(), starts_earlier)) {
    std::sort(intervals.begin(), intervals.end(), starts_earlier);
  }
  for (const TimeInterval& interval : intervals) append(interval);
}

void IntervalSet::append(TimeInterval interval) {
  if (interval.end_ns <= interval.start_ns) return;
  if (!intervals_.empty() && interval.start_ns <= intervals_.back().end_ns) {
    intervals_.back().end_ns = std::max(intervals_.back().end_ns, interval.end_ns);
  } else {
    intervals_.push_back(interval);
  }
}

int64_t IntervalSet::length_ns() const {
  int64_t total = 0;
  for (const TimeInterval& interval : intervals_) total += interval.end_ns - interval.start_ns;
  return total;
}

IntervalSet IntervalSet::unite(const IntervalSet& other) const {
  IntervalSet result;
  auto a = intervals_.begin();
  auto b = other.intervals_.begin();
  while (a != intervals_.end() || b != other.intervals_.end()) {
    const bool take_a =
        b == other.intervals_.end() || (a != intervals_.end() && starts_earlier(*a, *b));
    result.append(take_a ? *a++ : *b++);
  }
  return result;
}

IntervalSet IntervalSet::intersect(const IntervalSet& other) const {
  IntervalSet result;
  auto a = intervals_.begin();
  auto b = other.intervals_.begin();
  while (a != intervals_.end() && b != other.intervals_.end()) {
    result.append({std::max(a->start_ns, b->start_ns), std::min(a->end_ns, b->end_ns)});
    // What ends first meets nothing further.
    if (a->end_ns < b->end_ns) {
      ++a;
    } else {
      ++b;
    }
  }
  return result;
}

IntervalSet IntervalSet::subtract(const IntervalSet& other) const {
  IntervalSet result;
  auto hole = other.intervals_.begin();
  for (TimeInterval rest : intervals_) {
    while (hole != other.intervals_.end() && hole->end_ns <= rest.start_ns) ++hole;
    // A hole that reaches beyond this interval may also cut the next one, so it stays current.
    for (auto cut = hole; cut != other.intervals_.end() && cut->start_ns < rest.end_ns; ++cut) {
      result.append({rest.start_ns, cut->start_ns});
      rest.start_ns = cut->end_ns;
      hole = cut;
    }
    result.append(rest);
  }
  return result;
}

IntervalSet IntervalSet::clip(TimeInterval window) const {
  IntervalSet result;
  for (const TimeInterval& interval : intervals_) {
    result.append(
        {std::max(interval.start_ns, window.start_ns), std::min(interval.end_ns, window.end_ns)});
  }
  return result;
}

}  // namespace triptych
