// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Vector8: eight f16 or bf16 numbers, the 16 bytes that one thread moves in one access, the widest
// there is; and the arithmetic on them in f32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace triptych {

template <class T>
struct PairType;
template <>
struct PairType<__half> {
  using Type = __half2;
  static __device__ float2 to_float(Type pair) { return __half22float2(pair); }
  static __device__ Type from_float(float a, float b) { return __floats2half2_rn(a, b); }
};
template <>
struct PairType<__nv_bfloat16> {
  using Type = __nv_bfloat162;
  static __device__ float2 to_float(Type pair) { return __bfloat1622float2(pair); }
  static __device__ Type from_float(float a, float b) { return __floats2bfloat162_rn(a, b); }
};

/// kCount numbers, 8 or 4, two a word.
template <class T, int kCount>
struct alignas(2 * kCount) VectorOf {
  using Pair = typename PairType<T>::Type;
  static constexpr int kPairs = kCount / 2;
  uint32_t words[kPairs] = {};

  __device__ Pair pair(int i) const { return reinterpret_cast<const Pair&>(words[i]); }
  __device__ void set_pair(int i, Pair pair) { words[i] = reinterpret_cast<const uint32_t&>(pair); }
  __device__ float2 get(int i) const { return PairType<T>::to_float(pair(i)); }
  /// Rounds to nearest even.
  __device__ void set(int i, float a, float b) { set_pair(i, PairType<T>::from_float(a, b)); }
};
template <class T>
using Vector8 = VectorOf<T, 8>;

inline constexpr int kVectorWidth = 8;

/// The vector with number `index` of those that start at `base`, which is aligned to 16 bytes.
/// Past the L1 cache: for what is read once.
template <class T>
__device__ Vector8<T> load_once(const T* base, int64_t index) {
  const uint4 raw = __ldcg(reinterpret_cast<const uint4*>(base) + index);
  return {{raw.x, raw.y, raw.z, raw.w}};
}
/// Through the L1 cache: for weights that many blocks read. Never for what the kernel writes.
template <class T>
__device__ Vector8<T> load_shared_by_blocks(const T* base, int64_t index) {
  const uint4 raw = __ldg(reinterpret_cast<const uint4*>(base) + index);
  return {{raw.x, raw.y, raw.z, raw.w}};
}
template <class T>
__device__ void store(T* base, int64_t index, const Vector8<T>& value) {
  reinterpret_cast<uint4*>(base)[index] =
      make_uint4(value.words[0], value.words[1], value.words[2], value.words[3]);
}

}  // namespace triptych
