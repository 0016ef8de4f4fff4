// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Scheduler: which request starts when, and in which slot of the batch. Pure bookkeeping.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace triptych {

enum class BatchPolicy : uint8_t {
  /// Requests [0, max_batch) run, then the next max_batch, and so on: a group starts when the one
  /// before has finished. A sequence that finishes early is no longer computed, but its slot stays
  /// empty until the group ends.
  kStatic,
  /// A finished sequence's slot takes the next waiting request at once.
  kContinuous,
};

class Scheduler {
 public:
  Scheduler(BatchPolicy policy, int64_t num_requests, int64_t max_batch);

  struct Admission {
    int64_t request = 0;
    int64_t slot = 0;
  };
  /// The next request to prefill now, in order of submission, with the lowest empty slot; none if
  /// it has to wait. It is active from here on.
  [[nodiscard]] std::optional<Admission> admit();
  /// The sequences to decode together, in order of admission.
  [[nodiscard]] std::span<const Admission> active() const { return active_; }
  /// Precondition: `slot` is active. Invalidates active().
  void finish(int64_t slot);
  /// All requests were admitted and have finished.
  [[nodiscard]] bool done() const { return active_.empty() && next_ == num_requests_; }

 private:
  BatchPolicy policy_;
  int64_t num_requests_;
  int64_t max_batch_;
  int64_t next_ = 0;
  std::vector<Admission> active_;
  std::vector<bool> taken_;
};

}  // namespace triptych
