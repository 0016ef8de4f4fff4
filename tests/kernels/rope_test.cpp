// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace triptych {
namespace {

TEST(Rope, FrequenciesAreAGeometricSequence) {
  const auto f = rope_inverse_frequencies(10000.0, 8, {});
  ASSERT_EQ(f.size(), 4u);
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[1], 0.1f);
  EXPECT_FLOAT_EQ(f[2], 0.01f);
  EXPECT_FLOAT_EQ(f[3], 0.001f);
}

TEST(Rope, LinearScalingDividesEveryFrequency) {
  const RopeScaling scaling{.kind = RopeScalingKind::kLinear, .factor = 4.0};
  const auto plain = rope_inverse_frequencies(500000.0, 64, {});
  const auto scaled = rope_inverse_frequencies(500000.0, 64, scaling);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(scaled[i], plain[i] / 4.0f);
}

// theta 500000, head_dim 128, factor 8, low 1, high 4, original 8192 (Llama 3.1). Wavelengths below
// 8192 / 4 = 2048 are kept, above 8192 divided by 8, between the two interpolated. By hand:
//   i = 0:  1, wavelength 6.28                                           -> 1
//   i = 28: 500000^(-28/64) = 3.211446e-3, wavelength 1956.5             -> kept
//   i = 32: 500000^(-1/2)   = 1.414214e-3, wavelength 4442.9; 8192 / 4442.9 = 1.843848;
//           smooth = 0.843848 / 3 = 0.281283;
//           1.414214e-3 * (0.718717 / 8 + 0.281283)                      -> 5.248462e-4
//   i = 63: 500000^(-63/64) = 2.455141e-6, wavelength 2.6e6              -> 3.068926e-7
TEST(Rope, Llama3ScalingMatchesHandComputedValues) {
  const RopeScaling scaling{.kind = RopeScalingKind::kLlama3,
                            .factor = 8.0,
                            .low_freq_factor = 1.0,
                            .high_freq_factor = 4.0,
                            .original_max_position = 8192.0};
  const auto f = rope_inverse_frequencies(500000.0, 128, scaling);
  ASSERT_EQ(f.size(), 64u);
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_NEAR(f[28] / 3.211446e-3, 1.0, 1e-6);  // seven digits were written down
  EXPECT_NEAR(f[32] / 5.248462e-4, 1.0, 1e-6);
  EXPECT_NEAR(f[63] / 3.068926e-7, 1.0, 1e-6);
  const auto plain = rope_inverse_frequencies(500000.0, 128, {});
  for (size_t i = 1; i < f.size(); ++i) {
    EXPECT_LT(f[i], f[i - 1]);  // interpolation keeps the order
    EXPECT_LE(f[i], plain[i]);
    EXPECT_GE(f[i], plain[i] / 8.0f);
  }
}

}  // namespace
}  // namespace triptych
