// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Random matrices: f32 activations and weights of every type.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "kernels/common/dtype.h"
#include "kernels/common/half.h"
#include "kernels/quantize.h"

namespace triptych {

/// Standard normal values.
inline std::vector<float> random_floats(uint64_t seed, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random_normal(seed, i));
  return values;
}

/// A weight matrix that owns its bytes. They start at an odd address, because tensors in a file may
/// lie anywhere. Plain types hold normal values; block types hold random codes, every value of
/// which is legal, with scales in [2^-8, 2^-7) and, where there is one, a minimum of either sign.
class RandomWeights {
 public:
  RandomWeights(uint64_t seed, DType dtype, int64_t rows, int64_t columns)
      : view_{nullptr, dtype, rows, columns}, bytes_(static_cast<size_t>(view_.bytes()) + 2) {
    std::byte* data = bytes_.data() + 1 - reinterpret_cast<uintptr_t>(bytes_.data()) % 2;
    view_.data = data;
    if (dtype_info(dtype).block_elements == 1) {
      const std::vector<float> values = random_floats(seed, rows * columns);
      quantize_row(values.data(), rows * columns, dtype, data);
      return;
    }
    for (int64_t i = 0; i < view_.bytes(); ++i) {
      data[i] = static_cast<std::byte>(random_bits(seed, static_cast<uint64_t>(i)) & 0xFF);
    }
    const int64_t block_bytes = dtype_info(dtype).block_bytes;
    for (int64_t at = 0; at < view_.bytes(); at += block_bytes) {
      const uint64_t random = random_bits(seed + 1, static_cast<uint64_t>(at));
      put_half(data + at + (dtype == DType::kQ6_K ? 208 : 0), 0x1C00u | (random & 0x3FFu));
      if (has_minimum(dtype)) {
        put_half(data + at + 2, 0x2800u | (random >> 16 & 0x83FFu));
      }
    }
  }
  [[nodiscard]] const WeightView& view() const { return view_; }

 private:
  static bool has_minimum(DType dtype) {
    return dtype == DType::kQ4_1 || dtype == DType::kQ4_1_G64 || dtype == DType::kQ5_1 ||
           dtype == DType::kQ4_K || dtype == DType::kQ5_K;
  }
  static void put_half(std::byte* to, uint64_t bits) {
    const auto half = static_cast<uint16_t>(bits);
    std::memcpy(to, &half, sizeof(half));
  }

  WeightView view_;
  std::vector<std::byte> bytes_;
};

}  // namespace triptych
