// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The arithmetic of sampling, shared by host and device. Weights are whole numbers, so that their
// sums are exact and do not depend on the order of adding: any number of threads finds the same
// token.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/philox.h"
#include "kernels/sampling.h"

namespace triptych {

/// Weight of the largest logit; that of another is this times exp((logit - max) / temperature),
/// rounded down. What falls below 2^-40 of the largest (27.7 / temperature below it) has none: less
/// than 2^-20 of the whole, with the largest vocabulary. A sum of kMaxSampleVocab weights is below
/// 2^60.
inline constexpr uint64_t kFullSampleWeight = uint64_t{1} << 40;
inline constexpr int64_t kMaxSampleVocab = int64_t{1} << 19;

/// What logits are multiplied by. Precondition: temperature > 0.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline float sample_scale(float temperature) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(1.0f, temperature);
#else
  return 1.0f / temperature;
#endif
}

/// Preconditions: neither is NaN, logit <= max.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline uint64_t sample_weight(float logit, float max,
                                                                 float scale) {
  if (logit == max) return kFullSampleWeight;  // also where both are infinite
  const float d = mul_rn(add_rn(logit, -max), scale);
  if (!(d > -28.0f)) return 0;  // exp(-28) < 2^-40
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // few bits: its products with whole numbers are exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  // Products and sums are rounded apart: a host may have no fused multiply-add instruction.
  constexpr float kRound = 0x1.8p23f;  // adding it leaves no bits below the ones
  const float n = add_rn(add_rn(mul_rn(d, kLog2E), kRound), -kRound);
  float r = add_rn(d, -mul_rn(n, kLn2High));
  r = add_rn(r, -mul_rn(n, kLn2Low));  // exp(d) = 2^n exp(r), |r| <= 0.35
  // The Taylor series to r^7; the next term is below 2^-27.
  float e = add_rn(mul_rn(1.0f / 5040, r), 1.0f / 720);
  e = add_rn(mul_rn(e, r), 1.0f / 120);
  e = add_rn(mul_rn(e, r), 1.0f / 24);
  e = add_rn(mul_rn(e, r), 1.0f / 6);
  e = add_rn(mul_rn(e, r), 0.5f);
  e = add_rn(mul_rn(e, r), 1.0f);
  e = add_rn(mul_rn(e, r), 1.0f);
  // n >= -41, so the factor is a normal number and the product exact.
  const auto exponent = static_cast<uint32_t>(static_cast<int32_t>(n) + 40 + 127);
  return static_cast<uint64_t>(mul_rn(e, float_from_bits(exponent << 23)));
}

/// The least sum of weights that has the share top_p of `total`; at least 1 and at most `total`.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline uint64_t top_p_target(float top_p, uint64_t total) {
  if (!(top_p < 1.0f)) return total;
  const double target = ceil(static_cast<double>(top_p) * static_cast<double>(total));
  const auto whole = static_cast<uint64_t>(target);
  return whole < 1 ? 1 : whole < total ? whole : total;
}

/// 32 random bits, the same on host and device, a function of the seed and the key alone.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline uint32_t sample_bits(uint64_t seed, SampleKey key) {
  const Philox4x32 counter = {
      {static_cast<uint32_t>(key.position), static_cast<uint32_t>(key.request), 0, 0}};
  return philox4x32(counter, seed).words[0];
}

/// floor(total * bits / 2^32): below `total`. Precondition: total < 2^63.
[[nodiscard]] TRIPTYCH_HOST_DEVICE inline uint64_t sample_target(uint64_t total, uint32_t bits) {
  return (total >> 32) * bits + ((total & 0xFFFFFFFF) * bits >> 32);
}

}  // namespace triptych
