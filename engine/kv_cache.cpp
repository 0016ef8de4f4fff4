// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace triptych {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

PagedKvCache::PagedKvCache(Ops& ops, const KvShape& shape, int64_t page_size, int64_t num_pages)
    : ops_(ops),
      shape_(shape),
      page_size_(page_size),
      pages_per_slot_(ceil_div(shape.max_sequence, page_size)),
      num_pages_(num_pages),
      pool_bytes_(num_pages_ * page_size * shape.token_bytes()),
      free_(static_cast<size_t>(num_pages_)),
      slots_(static_cast<size_t>(shape.max_batch)) {
  for (int64_t i = 0; i < num_pages_; ++i) free_[i] = static_cast<int32_t>(num_pages_ - 1 - i);
  for (Slot& slot : slots_) {
    slot.ids.reserve(static_cast<size_t>(pages_per_slot_));
    slot.k.resize(static_cast<size_t>(shape.num_layers * pages_per_slot_));
    slot.v.resize(slot.k.size());
  }
  pool_ = ops.allocate(pool_bytes_);  // last: nothing after it can throw
}

PagedKvCache::~PagedKvCache() { ops_.release(pool_, pool_bytes_); }

Half* PagedKvCache::address(int64_t layer, int64_t which, int32_t id) const {
  const int64_t page = (layer * 2 + which) * num_pages_ + id;
  return reinterpret_cast<Half*>(pool_) + page * page_size_ * shape_.kv_columns;
}

void PagedKvCache::extend(int64_t slot, int64_t count) {
  Slot& s = slots_[slot];
  s.length += count;
  TRIPTYCH_CHECK(s.length <= shape_.max_sequence, "sequence longer than its cache");
  while (static_cast<int64_t>(s.ids.size()) * page_size_ < s.length) {
    TRIPTYCH_CHECK(!free_.empty(), "more tokens than the pool has pages for");
    const int32_t id = free_.back();
    free_.pop_back();
    const auto index = static_cast<int64_t>(s.ids.size());
    s.ids.push_back(id);
    for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
      s.k[layer * pages_per_slot_ + index] = address(layer, 0, id);
      s.v[layer * pages_per_slot_ + index] = address(layer, 1, id);
    }
  }
}

KvPages PagedKvCache::pages(int64_t slot, int64_t layer) const {
  const Slot& s = slots_[slot];
  const int64_t first = layer * pages_per_slot_;
  return {s.k.data() + first, s.v.data() + first, page_size_};
}

void PagedKvCache::clear(int64_t slot) noexcept {
  Slot& s = slots_[slot];
  free_.insert(free_.end(), s.ids.rbegin(), s.ids.rend());  // capacity is there since construction
  s.ids.clear();
  s.length = 0;
}

ContiguousKvCache::ContiguousKvCache(Ops& ops, const KvShape& shape)
    : ops_(ops), shape_(shape), slots_(static_cast<size_t>(shape.max_batch)) {
  for (Slot& slot : slots_) slot.layers.resize(static_cast<size_t>(shape.num_layers));
}

ContiguousKvCache::~ContiguousKvCache() {
  for (int64_t slot = 0; slot < shape_.max_batch; ++slot) clear(slot);
}

int64_t ContiguousKvCache::bytes(int64_t length) const {
  return length * shape_.kv_columns * static_cast<int64_t>(sizeof(Half));
}

void ContiguousKvCache::extend(int64_t slot, int64_t count) {
  slots_[slot].length += count;
  TRIPTYCH_CHECK(slots_[slot].length <= shape_.max_sequence, "sequence longer than its cache");
}

void ContiguousKvCache::grow(Buffer& buffer, int64_t length) {
  std::byte* grown = ops_.allocate(bytes(length));
  held_ += bytes(length);
  peak_ = std::max(peak_, held_);
  if (buffer.data != nullptr) {
    ops_.copy(reinterpret_cast<std::byte*>(buffer.data), grown, bytes(buffer.length), "kv_concat");
    free(buffer);
  }
  buffer = {reinterpret_cast<Half*>(grown), length};
}

void ContiguousKvCache::free(Buffer& buffer) noexcept {
  if (buffer.data == nullptr) return;
  ops_.release(reinterpret_cast<std::byte*>(buffer.data), bytes(buffer.length));
  held_ -= bytes(buffer.length);
  buffer = {};
}

void ContiguousKvCache::prepare_layer(int64_t slot, int64_t layer) {
  Slot& s = slots_[slot];
  grow(s.layers[layer].k, s.length);
  grow(s.layers[layer].v, s.length);
}

KvPages ContiguousKvCache::pages(int64_t slot, int64_t layer) const {
  const Layer& l = slots_[slot].layers[layer];
  return {&l.k.data, &l.v.data, l.k.length};
}

void ContiguousKvCache::clear(int64_t slot) noexcept {
  for (Layer& layer : slots_[slot].layers) {
    free(layer.k);
    free(layer.v);
  }
  slots_[slot].length = 0;
}

}  // namespace triptych
