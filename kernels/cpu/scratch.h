// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Scratch: a buffer that only grows, one per thread and use, so that steady state allocates
// nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace triptych::cpu {

class Scratch {
 public:
  /// At least `count` floats aligned to 64 bytes. Contents are undefined; the pointer holds until
  /// the next call.
  [[nodiscard]] float* floats(size_t count) {
    if (count > capacity_) {
      data_.reset();  // the old contents are dead, so the two need not exist at once
      data_.reset(static_cast<float*>(::operator new(count * sizeof(float), kAlignment)));
      capacity_ = count;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(float* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<float, Delete> data_;
  size_t capacity_ = 0;
};

}  // namespace triptych::cpu
