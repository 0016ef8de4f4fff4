// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kv_cache_cuda.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace triptych {

namespace {

constexpr int64_t kElementBytes = 2;  // f16 or bf16

}  // namespace

CudaPagedCache::CudaPagedCache(Ops& ops, const KvShape& shape, int64_t page_size, int64_t num_pages)
    : ops_(ops),
      table_(shape.max_batch, shape.max_sequence, page_size, num_pages),
      plane_bytes_(num_pages * page_size * shape.kv_columns * kElementBytes),
      pool_bytes_(2 * shape.num_layers * plane_bytes_),
      pool_(ops.allocate_pool(pool_bytes_)) {}

CudaPagedCache::~CudaPagedCache() { ops_.release_pool(pool_, pool_bytes_); }

CudaConcatCache::CudaConcatCache(Ops& ops, const KvShape& shape)
    : ops_(ops), shape_(shape), slots_(static_cast<size_t>(shape.max_batch)) {}

CudaConcatCache::~CudaConcatCache() {
  for (int64_t slot = 0; slot < shape_.max_batch; ++slot) clear(slot);
}

int64_t CudaConcatCache::part_bytes(int64_t tokens) const {
  return tokens * shape_.kv_columns * kElementBytes;
}

void CudaConcatCache::extend(int64_t slot, int64_t count) {
  slots_[slot].length += count;
  TRIPTYCH_CHECK(slots_[slot].length <= shape_.max_sequence, "sequence longer than its cache");
}

void CudaConcatCache::clear(int64_t slot) noexcept { slots_[slot] = {}; }

std::shared_ptr<CudaConcatCache::Group> CudaConcatCache::make_group(int64_t tokens) {
  return std::make_shared<Group>(*this, tokens);
}

void CudaConcatCache::move(int64_t slot, std::shared_ptr<Group> group, int64_t start) {
  slots_[slot].place = {std::move(group), start, slots_[slot].length};
}

CudaConcatCache::Group::Group(CudaConcatCache& owner, int64_t token_count)
    : cache(owner), tokens(token_count), parts(static_cast<size_t>(2 * owner.shape_.num_layers)) {}

CudaConcatCache::Group::~Group() {
  for (int64_t layer = 0; layer < cache.shape_.num_layers; ++layer) {
    for (const int which : {0, 1}) release(layer, which);
  }
}

std::byte* CudaConcatCache::Group::allocate(int64_t layer, int which) {
  std::byte*& part = parts[static_cast<size_t>(2 * layer + which)];
  part = cache.ops_.allocate(cache.part_bytes(tokens));
  cache.held_ += cache.part_bytes(tokens);
  cache.peak_ = std::max(cache.peak_, cache.held_);
  return part;
}

void CudaConcatCache::Group::release(int64_t layer, int which) noexcept {
  std::byte*& part = parts[static_cast<size_t>(2 * layer + which)];
  if (part == nullptr) return;
  cache.ops_.release(part, cache.part_bytes(tokens));
  cache.held_ -= cache.part_bytes(tokens);
  part = nullptr;
}

}  // namespace triptych
