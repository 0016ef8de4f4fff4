// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// cos and sin of position * inv_freq in f32 alone: no double, which many devices run at a 32nd or
// 64th of the f32 rate, and no table, which would have to be read.
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace triptych {

struct CosSin {
  float cos = 1.0f;
  float sin = 0.0f;
};

/// cos and sin of r, |r| <= 0.9: Taylor polynomials with the coefficients adjusted so that the
/// largest error on [-pi/4, pi/4] is smallest (Cephes: sinf, cosf).
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline CosSin cos_sin_reduced(float r) {
  const float z = r * r;
  float s = fma_rn(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = fma_rn(s, z, -1.6666654611e-1f);
  float c = fma_rn(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = fma_rn(c, z, 4.166664568298827e-2f);
  c = fma_rn(c, z, -0.5f);
  return {fma_rn(c, z, 1.0f), fma_rn(s * z, r, r)};
}

/// cos and sin of the exact product position * inv_freq, each within 2^-22 of the true value.
/// Requires 0 <= position < 2^20 and 0 <= inv_freq <= 1.
///
/// The product has at most 44 bits: hi, and lo = what rounding hi dropped, hold all of them. From
/// hi, k multiples of pi/2 = c1 + c2 + ... are taken. hi - k c1 is a multiple of 2^-23 (the last
/// bit of c1) below 1, so an fma gives it exactly; k c2 and lo are then added with one rounding of
/// a value below 1 each, and what pi/2 has beyond c1 + c2 adds less than k 2^-48 < 2^-28.
/// Source: Cody and Waite 1980.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline CosSin rope_angle(int32_t position, float inv_freq) {
  constexpr float kTwoOverPi = 0x1.45f306p-1f;
  constexpr float kC1 = 0x1.921fb6p+0f;  // pi/2 rounded to f32
  constexpr float kC2 = -0x1.777a5cp-25f;
  const auto p = static_cast<float>(position);
  const float hi = mul_rn(p, inv_freq);
  const float lo = fma_rn(p, inv_freq, -hi);
  const float k = round_even(mul_rn(hi, kTwoOverPi));
  float r = fma_rn(-k, kC1, hi);
  r = fma_rn(-k, kC2, r);
  r = add_rn(r, lo);
  const CosSin q = cos_sin_reduced(r);
  const int quadrant = static_cast<int>(k) & 3;
  const float c = (quadrant & 1) != 0 ? q.sin : q.cos;
  const float s = (quadrant & 1) != 0 ? q.cos : q.sin;
  return {quadrant == 1 || quadrant == 2 ? -c : c, quadrant >= 2 ? -s : s};
}

}  // namespace triptych
