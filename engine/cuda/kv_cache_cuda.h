// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The KV caches of a CUDA device: pages from one pool, or sequences grown by concatenation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/ops.h"
#include "engine/page_table.h"

namespace triptych {

/// Pool: [num_layers][keys, values][page][num_kv_heads][page_size][head_dim] of 16 bits.
class CudaPagedCache final : public KvCache {
 public:
  CudaPagedCache(Ops& ops, const KvShape& shape, int64_t page_size, int64_t num_pages);
  ~CudaPagedCache() override;
  CudaPagedCache(const CudaPagedCache&) = delete;
  CudaPagedCache& operator=(const CudaPagedCache&) = delete;

  void extend(int64_t slot, int64_t count) override { table_.extend(slot, count); }
  [[nodiscard]] int64_t length(int64_t slot) const override { return table_.length(slot); }
  void clear(int64_t slot) noexcept override { table_.clear(slot); }
  [[nodiscard]] int64_t peak_bytes() const override { return pool_bytes_; }
  void reset_peak() override {}

  [[nodiscard]] const PageTable& table() const { return table_; }
  [[nodiscard]] std::byte* keys(int64_t layer) const { return pool_ + 2 * layer * plane_bytes_; }
  [[nodiscard]] std::byte* values(int64_t layer) const { return keys(layer) + plane_bytes_; }

 private:
  Ops& ops_;
  PageTable table_;
  int64_t plane_bytes_;  // of keys or values of one layer
  int64_t pool_bytes_;
  std::byte* pool_;
};

/// Every step allocates, for each layer, keys and values of the sequences that it reads, one token
/// or more longer than they were, and copies the old ones over, as concatenation of tensors does.
/// Sequences of one step lie in one buffer, which is freed when none of them needs it any more.
class CudaConcatCache final : public KvCache {
 public:
  CudaConcatCache(Ops& ops, const KvShape& shape);
  ~CudaConcatCache() override;
  CudaConcatCache(const CudaConcatCache&) = delete;
  CudaConcatCache& operator=(const CudaConcatCache&) = delete;

  void extend(int64_t slot, int64_t count) override;
  [[nodiscard]] int64_t length(int64_t slot) const override { return slots_[slot].length; }
  void clear(int64_t slot) noexcept override;
  [[nodiscard]] int64_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = held_; }

  /// Keys and values, [layer][which], of the sequences of one step.
  struct Group {
    Group(CudaConcatCache& cache, int64_t tokens);
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    /// Allocates one part; freed with the group or by release().
    std::byte* allocate(int64_t layer, int which);
    void release(int64_t layer, int which) noexcept;
    [[nodiscard]] std::byte* data(int64_t layer, int which) const {
      return parts[static_cast<size_t>(2 * layer + which)];
    }

    CudaConcatCache& cache;
    int64_t tokens;
    std::vector<std::byte*> parts;
  };
  struct Place {
    std::shared_ptr<Group> group;  // null: nothing cached yet
    int64_t start = 0;             // token
    int64_t cached = 0;            // tokens
  };
  /// Where the slot's tokens are before the current step.
  [[nodiscard]] const Place& place(int64_t slot) const { return slots_[slot].place; }
  /// They are in `group` from now on.
  void move(int64_t slot, std::shared_ptr<Group> group, int64_t start);
  /// A group for a step of so many tokens in all.
  [[nodiscard]] std::shared_ptr<Group> make_group(int64_t tokens);
  /// Of keys, or of values, of one layer.
  [[nodiscard]] int64_t token_bytes() const { return part_bytes(1); }

 private:
  struct Slot {
    int64_t length = 0;
    Place place;
  };
  [[nodiscard]] int64_t part_bytes(int64_t tokens) const;

  Ops& ops_;
  KvShape shape_;
  int64_t held_ = 0;
  int64_t peak_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace triptych
