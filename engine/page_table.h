// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// PageTable: which pages of a pool hold the tokens of which sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace triptych {

/// Pages of `page_size` tokens, `num_pages` of them, given to at most `max_batch` sequences of at
/// most `max_sequence` tokens. The caller sees to it (Scheduler) that they never need more.
class PageTable {
 public:
  PageTable(int64_t max_batch, int64_t max_sequence, int64_t page_size, int64_t num_pages);

  /// Makes the slot's sequence `count` tokens longer.
  void extend(int64_t slot, int64_t count);
  /// Forgets the slot's sequence; its pages are free again.
  void clear(int64_t slot) noexcept;

  [[nodiscard]] int64_t length(int64_t slot) const { return slots_[slot].length; }
  /// Page ids of the slot's sequence, in order.
  [[nodiscard]] std::span<const int32_t> ids(int64_t slot) const { return slots_[slot].ids; }
  [[nodiscard]] int64_t page_size() const { return page_size_; }
  [[nodiscard]] int64_t pages_per_slot() const { return pages_per_slot_; }
  [[nodiscard]] int64_t num_pages() const { return num_pages_; }
  [[nodiscard]] int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

 private:
  struct Slot {
    int64_t length = 0;
    std::vector<int32_t> ids;
  };
  int64_t max_sequence_;
  int64_t page_size_;
  int64_t pages_per_slot_;
  int64_t num_pages_;
  std::vector<int32_t> free_;  // taken from the back
  std::vector<Slot> slots_;
};

}  // namespace triptych
