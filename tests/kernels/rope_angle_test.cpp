// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/rope_angle.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/rope.h"

namespace triptych {
namespace {

void expect_close(int32_t position, float inv_freq) {
  const double angle = static_cast<double>(position) * static_cast<double>(inv_freq);  // exact
  const CosSin got = rope_angle(position, inv_freq);
  ASSERT_NEAR(got.cos, std::cos(angle), 0x1.0p-22) << position << " * " << inv_freq;
  ASSERT_NEAR(got.sin, std::sin(angle), 0x1.0p-22) << position << " * " << inv_freq;
}

TEST(RopeAngle, IsRightForEveryFrequencyUpToTheLastPosition) {
  for (const double theta : {1e4, 5e5, 1e6}) {
    for (const float inv_freq : rope_inverse_frequencies(theta, 128, {})) {
      for (int32_t position = 0; position < 256; ++position) expect_close(position, inv_freq);
      for (int32_t position = 256; position < (1 << 20); position += 211) {
        expect_close(position, inv_freq);
      }
      expect_close((1 << 20) - 1, inv_freq);
    }
  }
}

TEST(RopeAngle, OfPositionZeroIsNoRotation) {
  const CosSin got = rope_angle(0, 0.3f);
  EXPECT_EQ(got.cos, 1.0f);
  EXPECT_EQ(got.sin, 0.0f);
}

}  // namespace
}  // namespace triptych
