// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Half: IEEE binary16 storage with exact conversions, the same on host and device.
#pragma once

#include <bit>
#include <cstdint>

namespace triptych {

struct Half {
  uint16_t bits = 0;
};

/// Exact: every binary16 value is a binary32 value.
[[nodiscard]] constexpr float half_to_float(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16;
  uint32_t exponent = (half.bits >> 10) & 0x1Fu;
  uint32_t mantissa = half.bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    exponent = 1;
    while ((mantissa & 0x400u) == 0) {  // subnormal: shift until the leading one is implicit
      mantissa <<= 1;
      --exponent;
    }
    mantissa &= 0x3FFu;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Round to nearest, ties to even; overflow gives infinity; NaN stays NaN.
[[nodiscard]] constexpr Half half_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, in units of 2^-24
    if (magnitude < 0x33000000u) return {sign};
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t half_way = 1u << (shift - 1);
    const uint32_t up = rest > half_way || (rest == half_way && (kept & 1u) != 0) ? 1 : 0;
    return {static_cast<uint16_t>(sign | (kept + up))};
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace triptych
