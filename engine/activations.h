// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Memory of operation results: one allocation each, or one arena that is sized once.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ops.h"

namespace triptych {

class ActivationMemory;

/// Owns the memory of one result; gives it back when it goes out of scope.
class Activation {
 public:
  Activation() = default;
  Activation(ActivationMemory& memory, Tensor tensor) : memory_(&memory), tensor_(tensor) {}
  Activation(Activation&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), tensor_(std::exchange(other.tensor_, {})) {}
  Activation& operator=(Activation&& other) noexcept;
  ~Activation() { reset(); }

  void reset() noexcept;
  operator Tensor() const { return tensor_; }  // implicit on purpose: operations take tensors
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  ActivationMemory* memory_ = nullptr;
  Tensor tensor_;
};

class ActivationMemory {
 public:
  virtual ~ActivationMemory() = default;
  /// An uninitialised [rows, columns] tensor; throws std::bad_alloc.
  [[nodiscard]] virtual Activation allocate(int64_t rows, int64_t columns) = 0;
  virtual void release(const Tensor& tensor) noexcept = 0;

  /// Most bytes held at once since reset_peak(); an arena counts whole.
  [[nodiscard]] virtual int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;
};

/// One device allocation per result.
[[nodiscard]] std::unique_ptr<ActivationMemory> make_heap_activations(Ops& ops);

/// One block of `bytes`, from which results are cut first-fit. Too small a block is a bug of the
/// caller (CHECK): plan it with an ArenaPlan.
[[nodiscard]] std::unique_ptr<ActivationMemory> make_arena_activations(Ops& ops, int64_t bytes);

/// First-fit placement of blocks at offsets. A result occupies rows * round_up(row bytes, 64), so
/// that the same sequence of results with fewer rows is placed the same way at smaller offsets and
/// needs no more room.
class ArenaLayout {
 public:
  [[nodiscard]] static int64_t footprint(int64_t rows, int64_t row_bytes) {
    return rows * ((row_bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  [[nodiscard]] int64_t place(int64_t bytes);
  void remove(int64_t offset) noexcept;
  /// End of the farthest block so far.
  [[nodiscard]] int64_t high_water() const { return high_water_; }

 private:
  static constexpr int64_t kAlignment = 64;  // bytes: a cache line, a full SIMD register
  struct Block {
    int64_t offset;
    int64_t bytes;
  };
  std::vector<Block> live_;  // ordered by offset; about ten at most
  int64_t high_water_ = 0;
};

/// Places results without memory behind them, to find out how much an arena needs. The tensors it
/// gives must not be read or written.
class ArenaPlan final : public ActivationMemory {
 public:
  explicit ArenaPlan(int64_t element_bytes) : element_bytes_(element_bytes) {}
  Activation allocate(int64_t rows, int64_t columns) override;
  void release(const Tensor& tensor) noexcept override;
  [[nodiscard]] int64_t peak_bytes() const override { return layout_.high_water(); }
  void reset_peak() override {}

 private:
  int64_t element_bytes_;
  ArenaLayout layout_;
};

}  // namespace triptych
