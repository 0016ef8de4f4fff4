// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace triptych {

Scheduler::Scheduler(BatchPolicy policy, int64_t num_requests, int64_t max_batch)
    : policy_(policy),
      num_requests_(num_requests),
      max_batch_(max_batch),
      taken_(static_cast<size_t>(max_batch)) {
  active_.reserve(static_cast<size_t>(max_batch));
}

std::optional<Scheduler::Admission> Scheduler::admit() {
  if (next_ == num_requests_) return std::nullopt;
  const auto slot =
      static_cast<int64_t>(std::find(taken_.begin(), taken_.end(), false) - taken_.begin());
  if (slot == max_batch_) return std::nullopt;
  if (policy_ == BatchPolicy::kStatic && !active_.empty() &&
      next_ / max_batch_ != active_.front().request / max_batch_) {
    return std::nullopt;  // the next group waits for every sequence of this one
  }
  taken_[slot] = true;
  active_.push_back({next_++, slot});
  return active_.back();
}

void Scheduler::finish(int64_t slot) {
  const auto it = std::find_if(active_.begin(), active_.end(),
                               [&](const Admission& a) { return a.slot == slot; });
  TRIPTYCH_CHECK(it != active_.end(), "finished a slot that is not active");
  active_.erase(it);
  taken_[slot] = false;
}

}  // namespace triptych
