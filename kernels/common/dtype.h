// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// DType: how numbers are stored, and the block layouts of quantized weights, bit by bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace triptych {

/// Storage types. A block type stores `block_elements` neighbours along K in `block_bytes` bytes:
///   kQ8_0   32: f16 d | 32 x int8 q                      w = d * q
///   kQ4_0   32: f16 d | 16 bytes q                       w = d * (q - 8)
///   kQ4_1   32: f16 d | f16 m | 16 bytes q               w = d * q + m
///   kQ4_1_G64 64: f16 d | f16 m | 2 x 16 bytes q         w = d * q + m   (ours)
///   kQ5_0   32: f16 d | 4 bytes h | 16 bytes q           w = d * (q - 16)
///   kQ5_1   32: f16 d | f16 m | 4 bytes h | 16 bytes q   w = d * q + m
///   kQ4_K  256: f16 d | f16 m | 12 bytes s | 4 x 32 bytes q             w = d s q - m t
///   kQ5_K  256: f16 d | f16 m | 12 bytes s | 32 bytes h | 4 x 32 bytes q   w = d s q - m t
///   kQ6_K  256: 128 bytes low 4 bits | 64 bytes high 2 bits | 16 x int8 scale | f16 d
/// In every 16 code bytes of the types of 32 and 64 elements byte j holds element j in its low
/// nibble and element j + 16 in its high nibble; bit j of h (little endian) is bit 4 of code j.
/// K types: each 32 elements c = 0..7 have a scale s and a minimum t of 6 bits. Chunk c is the low
/// (even c) or high (odd c) nibbles of the c / 2-th 32 code bytes; bit c of h[j] is bit 4 of its
/// code j. In the 12 bytes b of s: for c < 4, s = b[c] & 63 and t = b[c + 4] & 63; otherwise
/// s = b[c + 4] & 15 | b[c - 4] >> 6 << 4 and t = b[c + 4] >> 4 | b[c] >> 6 << 4.
/// f16 is little-endian IEEE binary16. Source: the GGUF format.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ4_1_G64,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int block_elements;
  int block_bytes;
};

inline constexpr std::array<DTypeInfo, 12> kDTypes = {{
    {DType::kF32, "f32", 1, 4},
    {DType::kF16, "f16", 1, 2},
    {DType::kBF16, "bf16", 1, 2},
    {DType::kQ8_0, "q8_0", 32, 34},
    {DType::kQ4_0, "q4_0", 32, 18},
    {DType::kQ4_1, "q4_1", 32, 20},
    {DType::kQ4_1_G64, "q4_1_g64", 64, 36},
    {DType::kQ5_0, "q5_0", 32, 22},
    {DType::kQ5_1, "q5_1", 32, 24},
    {DType::kQ4_K, "q4_k", 256, 144},
    {DType::kQ5_K, "q5_k", 256, 176},
    {DType::kQ6_K, "q6_k", 256, 210},
}};

[[nodiscard]] constexpr const DTypeInfo& dtype_info(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)];
}
static_assert(
    [] {
      for (size_t i = 0; i < kDTypes.size(); ++i) {
        if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
      }
      return true;
    }(),
    "kDTypes is indexed by the enumerator");

/// Bytes of one row of `columns` elements. Precondition: columns is a multiple of block_elements.
[[nodiscard]] constexpr int64_t row_bytes(DType dtype, int64_t columns) {
  return columns / dtype_info(dtype).block_elements * dtype_info(dtype).block_bytes;
}

/// A row-major weight matrix [rows = N, columns = K] somewhere in memory; does not own it.
/// y = x W^T has x [M, K] and y [M, N]. Rows lie back to back, row_bytes(dtype, columns) apart.
struct WeightView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;

  [[nodiscard]] constexpr int64_t bytes() const { return rows * row_bytes(dtype, columns); }
  [[nodiscard]] const std::byte* row(int64_t r) const {
    return data + r * row_bytes(dtype, columns);
  }
};

}  // namespace triptych
