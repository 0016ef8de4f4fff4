// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/page_table.h"

#include "base/check.h"

namespace triptych {

PageTable::PageTable(int64_t max_batch, int64_t max_sequence, int64_t page_size, int64_t num_pages)
    : max_sequence_(max_sequence),
      page_size_(page_size),
      pages_per_slot_((max_sequence + page_size - 1) / page_size),
      num_pages_(num_pages),
      free_(static_cast<size_t>(num_pages)),
      slots_(static_cast<size_t>(max_batch)) {
  for (int64_t i = 0; i < num_pages_; ++i) free_[i] = static_cast<int32_t>(num_pages_ - 1 - i);
  for (Slot& slot : slots_) slot.ids.reserve(static_cast<size_t>(pages_per_slot_));
}

void PageTable::extend(int64_t slot, int64_t count) {
  Slot& s = slots_[slot];
  s.length += count;
  TRIPTYCH_CHECK(s.length <= max_sequence_, "sequence longer than its cache");
  while (static_cast<int64_t>(s.ids.size()) * page_size_ < s.length) {
    TRIPTYCH_CHECK(!free_.empty(), "more tokens than the pool has pages for");
    s.ids.push_back(free_.back());
    free_.pop_back();
  }
}

void PageTable::clear(int64_t slot) noexcept {
  Slot& s = slots_[slot];
  free_.insert(free_.end(), s.ids.rbegin(), s.ids.rend());  // capacity is there since construction
  s.ids.clear();
  s.length = 0;
}

}  // namespace triptych
