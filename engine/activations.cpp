// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/activations.h"

#include <algorithm>

#include "base/check.h"

namespace triptych {

Activation& Activation::operator=(Activation&& other) noexcept {
  if (this != &other) {
    reset();
    memory_ = std::exchange(other.memory_, nullptr);
    tensor_ = std::exchange(other.tensor_, {});
  }
  return *this;
}

void Activation::reset() noexcept {
  if (memory_ != nullptr) memory_->release(tensor_);
  memory_ = nullptr;
  tensor_ = {};
}

int64_t ArenaLayout::place(int64_t bytes) {
  int64_t offset = 0;
  auto next = live_.begin();
  for (; next != live_.end() && next->offset - offset < bytes; ++next) {
    offset = next->offset + next->bytes;
  }
  live_.insert(next, {offset, bytes});
  high_water_ = std::max(high_water_, offset + bytes);
  return offset;
}

void ArenaLayout::remove(int64_t offset) noexcept {
  const auto block = std::find_if(live_.begin(), live_.end(),
                                  [&](const Block& live) { return live.offset == offset; });
  TRIPTYCH_CHECK(block != live_.end(), "released a result that the arena does not hold");
  live_.erase(block);
}

Activation ArenaPlan::allocate(int64_t rows, int64_t columns) {
  const int64_t row_bytes = columns * element_bytes_;
  const int64_t offset = layout_.place(ArenaLayout::footprint(rows, row_bytes));
  return {*this, {reinterpret_cast<void*>(offset), rows, columns, row_bytes}};
}

void ArenaPlan::release(const Tensor& tensor) noexcept {
  layout_.remove(reinterpret_cast<int64_t>(tensor.data));
}

namespace {

class HeapActivations final : public ActivationMemory {
 public:
  explicit HeapActivations(Ops& ops) : ops_(ops), element_bytes_(activation_bytes(ops.device())) {}

  Activation allocate(int64_t rows, int64_t columns) override {
    const int64_t row_bytes = columns * element_bytes_;
    Tensor tensor{ops_.allocate(rows * row_bytes), rows, columns, row_bytes};
    held_ += tensor.bytes();
    peak_ = std::max(peak_, held_);
    return {*this, tensor};
  }
  void release(const Tensor& tensor) noexcept override {
    ops_.release(static_cast<std::byte*>(tensor.data), tensor.bytes());
    held_ -= tensor.bytes();
  }
  [[nodiscard]] int64_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = held_; }

 private:
  Ops& ops_;
  int64_t element_bytes_;
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

class ArenaActivations final : public ActivationMemory {
 public:
  ArenaActivations(Ops& ops, int64_t bytes)
      : ops_(ops),
        element_bytes_(activation_bytes(ops.device())),
        bytes_(bytes),
        base_(ops.allocate_pool(bytes)) {}
  ~ArenaActivations() override { ops_.release_pool(base_, bytes_); }

  Activation allocate(int64_t rows, int64_t columns) override {
    const int64_t row_bytes = columns * element_bytes_;
    const int64_t offset = layout_.place(ArenaLayout::footprint(rows, row_bytes));
    TRIPTYCH_CHECK(layout_.high_water() <= bytes_, "a result does not fit the planned arena");
    return {*this, {base_ + offset, rows, columns, row_bytes}};
  }
  void release(const Tensor& tensor) noexcept override {
    layout_.remove(static_cast<std::byte*>(tensor.data) - base_);
  }
  [[nodiscard]] int64_t peak_bytes() const override { return bytes_; }
  void reset_peak() override {}

 private:
  Ops& ops_;
  int64_t element_bytes_;
  int64_t bytes_;
  std::byte* base_;
  ArenaLayout layout_;
};

}  // namespace

std::unique_ptr<ActivationMemory> make_heap_activations(Ops& ops) {
  return std::make_unique<HeapActivations>(ops);
}

std::unique_ptr<ActivationMemory> make_arena_activations(Ops& ops, int64_t bytes) {
  return std::make_unique<ArenaActivations>(ops, bytes);
}

}  // namespace triptych
