// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace triptych {
namespace {

// Llama 3.1: wavelengths below original/high are kept, above original/low are stretched by
// `factor`, and between the two the inverse frequency is interpolated linearly in
// original / wavelength.
double scale_llama3(double inv_freq, const RopeScaling& scaling) {
  const double turns = scaling.original_max_position * inv_freq / (2.0 * std::numbers::pi);
  if (turns > scaling.high_freq_factor) return inv_freq;
  if (turns < scaling.low_freq_factor) return inv_freq / scaling.factor;
  const double smooth =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * inv_freq / scaling.factor + smooth * inv_freq;
}

double scale(double inv_freq, const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      return inv_freq;
    case RopeScalingKind::kLinear:
      return inv_freq / scaling.factor;
    case RopeScalingKind::kLlama3:
      return scale_llama3(inv_freq, scaling);
  }
  TRIPTYCH_CHECK(false, "unknown RopeScalingKind");
}

}  // namespace

std::vector<float> rope_inverse_frequencies(double theta, int64_t head_dim,
                                            const RopeScaling& scaling) {
  TRIPTYCH_CHECK(head_dim > 0 && head_dim % 2 == 0, "head_dim must be even");
  std::vector<float> out(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    out[i] = static_cast<float>(scale(std::pow(theta, exponent), scaling));
  }
  return out;
}

}  // namespace triptych
