// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The reference decodes one element at a time and shares no code with the SIMD kernels.
#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/common/half.h"
#include "kernels/cpu/linear.h"

namespace triptych::cpu {
namespace {

uint16_t load_u16(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

double load_half(const std::byte* at) { return half_to_float(Half{load_u16(at)}); }

int load_i8(const std::byte* at) { return static_cast<int8_t>(*at); }

// Element j of 16 bytes that hold 32 codes: the low nibbles are elements 0..15.
int nibble(const std::byte* codes, int64_t j) {
  const int byte = std::to_integer<int>(codes[j % 16]);
  return j < 16 ? byte & 15 : byte >> 4;
}

// Bit 4 of code j, from the 32 bits that hold one for each code.
int fifth_bit(const std::byte* bits, int64_t j) {
  return (std::to_integer<int>(bits[j / 8]) >> (j % 8) & 1) << 4;
}

// Scale and minimum of chunk c of a K type: six bits each, of which those of the last four chunks
// are split.
double k_scale(const std::byte* packed, int64_t c) {
  const auto at = [packed](int64_t i) { return std::to_integer<int>(packed[i]); };
  return c < 4 ? at(c) & 63 : (at(c + 4) & 15) | at(c - 4) >> 6 << 4;
}
double k_minimum(const std::byte* packed, int64_t c) {
  const auto at = [packed](int64_t i) { return std::to_integer<int>(packed[i]); };
  return c < 4 ? at(c + 4) & 63 : at(c + 4) >> 4 | at(c) >> 6 << 4;
}

// `high` is null for Q4_K.
double k_element(const std::byte* block, const std::byte* high, const std::byte* low, int64_t j) {
  const int64_t c = j / 32;
  const int64_t l = j % 32;
  int code = std::to_integer<int>(low[c / 2 * 32 + l]) >> (c % 2 * 4) & 15;
  if (high != nullptr) code |= (std::to_integer<int>(high[l]) >> c & 1) << 4;
  return load_half(block) * k_scale(block + 4, c) * code -
         load_half(block + 2) * k_minimum(block + 4, c);
}

// Each half of a Q6_K block (128 elements) has 64 bytes of low nibbles and 32 of high bit pairs;
// element 32 r + l takes nibble r / 2 of byte l + 32 (r % 2) and bit pair r of byte l.
double q6_k(const std::byte* block, int64_t j) {
  const int64_t half = j / 128;
  const int64_t r = j % 128 / 32;
  const int64_t l = j % 32;
  const int low = std::to_integer<int>(block[half * 64 + l + 32 * (r % 2)]) >> (4 * (r / 2)) & 15;
  const int high = std::to_integer<int>(block[128 + half * 32 + l]) >> (2 * r) & 3;
  const int scale = load_i8(block + 192 + j / 16);
  return load_half(block + 208) * scale * ((low | high << 4) - 32);
}

double element(const WeightView& w, int64_t row, int64_t column) {
  const DTypeInfo& info = dtype_info(w.dtype);
  const std::byte* block = w.row(row) + column / info.block_elements * info.block_bytes;
  const int64_t j = column % info.block_elements;
  switch (w.dtype) {
    case DType::kF32: {
      float value = 0.0f;
      std::memcpy(&value, block, sizeof(value));
      return value;
    }
    case DType::kF16:
      return load_half(block);
    case DType::kBF16:
      return std::bit_cast<float>(static_cast<uint32_t>(load_u16(block)) << 16);
    case DType::kQ8_0:
      return load_half(block) * load_i8(block + 2 + j);
    case DType::kQ4_0:
      return load_half(block) * (nibble(block + 2, j) - 8);
    case DType::kQ4_1:
    case DType::kQ4_1_G64:
      return load_half(block) * nibble(block + 4 + j / 32 * 16, j % 32) + load_half(block + 2);
    case DType::kQ5_0:
      return load_half(block) * ((nibble(block + 6, j) | fifth_bit(block + 2, j)) - 16);
    case DType::kQ5_1:
      return load_half(block) * (nibble(block + 8, j) | fifth_bit(block + 4, j)) +
             load_half(block + 2);
    case DType::kQ4_K:
      return k_element(block, nullptr, block + 16, j);
    case DType::kQ5_K:
      return k_element(block, block + 16, block + 48, j);
    case DType::kQ6_K:
      return q6_k(block, j);
  }
  TRIPTYCH_CHECK(false, "unknown DType");
}

}  // namespace

void linear_ref(const LinearArgs& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t n = 0; n < args.w.rows; ++n) {
      double sum = 0.0;
      for (int64_t k = 0; k < args.w.columns; ++k) {
        sum += static_cast<double>(args.x[i * args.x_stride + k]) * element(args.w, n, k);
      }
      args.y[i * args.y_stride + n] = static_cast<float>(sum);
    }
  }
}

}  // namespace triptych::cpu
