// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace triptych {

PagedKvCache::PagedKvCache(Ops& ops, const KvShape& shape, int64_t page_size, int64_t num_pages)
    : ops_(ops),
      shape_(shape),
      table_(shape.max_batch, shape.max_sequence, page_size, num_pages),
      pool_bytes_(num_pages * page_size * shape.token_bytes()),
      addresses_(static_cast<size_t>(shape.max_batch)) {
  for (Addresses& addresses : addresses_) {
    addresses.k.resize(static_cast<size_t>(shape.num_layers * table_.pages_per_slot()));
    addresses.v.resize(addresses.k.size());
  }
  pool_ = ops.allocate_pool(pool_bytes_);  // last: nothing after it can throw
}

PagedKvCache::~PagedKvCache() { ops_.release_pool(pool_, pool_bytes_); }

Half* PagedKvCache::address(int64_t layer, int64_t which, int32_t id) const {
  const int64_t page = (layer * 2 + which) * table_.num_pages() + id;
  return reinterpret_cast<Half*>(pool_) + page * table_.page_size() * shape_.kv_columns;
}

void PagedKvCache::extend(int64_t slot, int64_t count) {
  const size_t held = table_.ids(slot).size();
  table_.extend(slot, count);
  const std::span<const int32_t> ids = table_.ids(slot);
  Addresses& addresses = addresses_[slot];
  for (size_t page = held; page < ids.size(); ++page) {
    for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
      const size_t at = static_cast<size_t>(layer * table_.pages_per_slot()) + page;
      addresses.k[at] = address(layer, 0, ids[page]);
      addresses.v[at] = address(layer, 1, ids[page]);
    }
  }
}

KvPages PagedKvCache::pages(int64_t slot, int64_t layer) const {
  const Addresses& addresses = addresses_[slot];
  const int64_t first = layer * table_.pages_per_slot();
  return {addresses.k.data() + first, addresses.v.data() + first, table_.page_size()};
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
