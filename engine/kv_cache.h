// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// KvCache: keys and values of the sequences in flight, in pages or grown by concatenation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops.h"
#include "engine/page_table.h"
#include "kernels/common/half.h"

namespace triptych {

/// Shape of a cache. One token of one layer has kv_columns = num_kv_heads * head_dim keys and as
/// many values, f16.
struct KvShape {
  int64_t num_layers = 0;
  int64_t kv_columns = 0;
  int64_t max_batch = 0;     ///< Slots, numbered from 0.
  int64_t max_sequence = 0;  ///< Most tokens of a slot.

  /// Keys and values of one token over all layers.
  [[nodiscard]] int64_t token_bytes() const {
    return 2 * num_layers * kv_columns * static_cast<int64_t>(sizeof(Half));
  }
};

/// Pages of one sequence in one layer: token t is row t % page_size, [kv_columns], of page
/// t / page_size. A contiguous cache is one page as long as the sequence.
struct KvPages {
  Half* const* k = nullptr;
  Half* const* v = nullptr;
  int64_t page_size = 0;
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  /// Makes the slot's sequence `count` tokens longer. Precondition: it stays within max_sequence.
  virtual void extend(int64_t slot, int64_t count) = 0;
  [[nodiscard]] virtual int64_t length(int64_t slot) const = 0;
  /// Forgets the slot's sequence; its memory is free again.
  virtual void clear(int64_t slot) noexcept = 0;

  /// Most bytes held at once since reset_peak(); a page pool counts whole.
  [[nodiscard]] virtual int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;
};

/// A cache that the CPU's operations read and write.
class HostKvCache : public KvCache {
 public:
  /// Called once per step, sequence and layer before the new tokens are written there.
  virtual void prepare_layer(int64_t slot, int64_t layer) = 0;
  /// Valid until the next extend, prepare_layer or clear of this slot.
  [[nodiscard]] virtual KvPages pages(int64_t slot, int64_t layer) const = 0;
};

/// Pages of `page_size` tokens from one pool of `num_pages` that is allocated here; the caller sees
/// to it (Scheduler) that the sequences never need more. Pool: [num_layers][keys,
/// values][page][page_size][kv_columns] f16. A page id holds the same page of every layer.
class PagedKvCache final : public HostKvCache {
 public:
  PagedKvCache(Ops& ops, const KvShape& shape, int64_t page_size, int64_t num_pages);
  ~PagedKvCache() override;
  PagedKvCache(const PagedKvCache&) = delete;
  PagedKvCache& operator=(const PagedKvCache&) = delete;

  void extend(int64_t slot, int64_t count) override;
  void prepare_layer(int64_t, int64_t) override {}
  [[nodiscard]] KvPages pages(int64_t slot, int64_t layer) const override;
  [[nodiscard]] int64_t length(int64_t slot) const override { return table_.length(slot); }
  void clear(int64_t slot) noexcept override { table_.clear(slot); }
  [[nodiscard]] int64_t peak_bytes() const override { return pool_bytes_; }
  void reset_peak() override {}

  /// Page ids of the slot's sequence, in order.
  [[nodiscard]] std::span<const int32_t> page_ids(int64_t slot) const { return table_.ids(slot); }
  [[nodiscard]] int64_t free_pages() const { return table_.free_pages(); }

 private:
  struct Addresses {
    std::vector<Half*> k;  // [num_layers][pages_per_slot]
    std::vector<Half*> v;
  };
  [[nodiscard]] Half* address(int64_t layer, int64_t which, int32_t id) const;

  Ops& ops_;
  KvShape shape_;
  PageTable table_;
  int64_t pool_bytes_;
  std::byte* pool_;
  std::vector<Addresses> addresses_;  // [slot]
};

/// One buffer of keys and one of values per sequence and layer. Every step allocates buffers of
/// length + new tokens and copies the old ones over, as concatenation of tensors does; old and new
/// exist side by side during the copy.
class ContiguousKvCache final : public HostKvCache {
 public:
  ContiguousKvCache(Ops& ops, const KvShape& shape);
  ~ContiguousKvCache() override;
  ContiguousKvCache(const ContiguousKvCache&) = delete;
  ContiguousKvCache& operator=(const ContiguousKvCache&) = delete;

  void extend(int64_t slot, int64_t count) override;
  void prepare_layer(int64_t slot, int64_t layer) override;
  [[nodiscard]] KvPages pages(int64_t slot, int64_t layer) const override;
  [[nodiscard]] int64_t length(int64_t slot) const override { return slots_[slot].length; }
  void clear(int64_t slot) noexcept override;
  [[nodiscard]] int64_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = held_; }

 private:
  struct Buffer {
    Half* data = nullptr;
    int64_t length = 0;  // tokens
  };
  struct Layer {
    Buffer k, v;
  };
  struct Slot {
    int64_t length = 0;
    std::vector<Layer> layers;
  };
  void grow(Buffer& buffer, int64_t length);
  void free(Buffer& buffer) noexcept;
  [[nodiscard]] int64_t bytes(int64_t length) const;

  Ops& ops_;
  KvShape shape_;
  int64_t held_ = 0;
  int64_t peak_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace triptych
