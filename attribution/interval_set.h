// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// IntervalSet: the algebra of stretches of time, exact in integer ns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace triptych {

/// Half-open [start_ns, end_ns); nothing if end_ns <= start_ns.
struct TimeInterval {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  friend bool operator==(const TimeInterval&, const TimeInterval&) = default;
};

/// A set of points in time, held as sorted, disjoint, non-touching intervals. Every operation of
/// two sets is one merge, linear in their sizes. Precondition of length_ns(): it fits 64 bits.
class IntervalSet {
 public:
  IntervalSet() = default;
  /// The union of `intervals`, in any order, overlapping or empty. Linear if sorted by start.
  explicit IntervalSet(std::vector<TimeInterval> intervals);

  [[nodiscard]] std::span<const TimeInterval> intervals() const { return intervals_; }
  [[nodiscard]] bool empty() const { return intervals_.empty(); }
  [[nodiscard]] int64_t length_ns() const;

  [[nodiscard]] IntervalSet unite(const IntervalSet& other) const;
  [[nodiscard]] IntervalSet intersect(const IntervalSet& other) const;
  [[nodiscard]] IntervalSet subtract(const IntervalSet& other) const;
  /// The part inside `window`.
  [[nodiscard]] IntervalSet clip(TimeInterval window) const;

  friend bool operator==(const IntervalSet&, const IntervalSet&) = default;

 private:
  /// Appends at the end; joins what touches. Precondition: starts at or after the last start.
  void append(TimeInterval interval);

  std::vector<TimeInterval> intervals_;
};

}  // namespace triptych
