// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Keys of f16 and bf16 numbers: 16-bit integers in the order of the numbers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace triptych {

/// Of NaN, below the key of every number.
inline constexpr uint32_t kNanKey = 0;

template <class T>
struct Infinity;
template <>
struct Infinity<__half> {
  static constexpr uint32_t kBits = 0x7C00;
};
template <>
struct Infinity<__nv_bfloat16> {
  static constexpr uint32_t kBits = 0x7F80;
};

/// `bits` are the 16 of a T. Both zeros have one key.
template <class T>
__device__ uint32_t order_key(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFF;
  if (magnitude > Infinity<T>::kBits) return kNanKey;
  return (bits & 0x8000) != 0 ? 0x8000 - magnitude : 0x8000 + magnitude;
}

/// The number that has this key, which is not kNanKey.
template <class T>
__device__ float value_of_key(uint32_t key) {
  const uint32_t bits = key >= 0x8000 ? key - 0x8000 : (0x8000 - key) | 0x8000;
  T value;
  reinterpret_cast<unsigned short&>(value) = static_cast<unsigned short>(bits);
  return static_cast<float>(value);
}

}  // namespace triptych
