// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace triptych {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value by its definition: sign, 5 exponent bits with bias 15, 10 mantissa bits.
double value_by_definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_nan(uint16_t bits) { return (bits & 0x7FFF) > 0x7C00; }

TEST(Half, EveryValueWidensExactly) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = half_to_float(Half{bits});
    if (is_nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << i;
    } else if ((bits & 0x7FFF) == 0x7C00) {
      ASSERT_EQ(value, (bits & 0x8000) != 0 ? -kInfinity : kInfinity);
    } else {
      ASSERT_EQ(value, value_by_definition(bits)) << i;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
    }
  }
}

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const Half back = half_from_float(half_to_float(Half{bits}));
    if (is_nan(bits)) {
      ASSERT_TRUE(is_nan(back.bits)) << i;
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

// Between two neighbours the nearer one is taken, and at the midpoint the even one.
TEST(Half, RoundsToNearestTiesToEven) {
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const auto next = static_cast<uint16_t>(bits + 1);
    const float low = half_to_float(Half{bits});
    const float high = half_to_float(Half{next});
    const float middle = low + (high - low) / 2;  // exact: one more mantissa bit
    ASSERT_EQ(half_from_float(middle).bits, (bits & 1) == 0 ? bits : next);
    ASSERT_EQ(half_from_float(std::nextafter(middle, low)).bits, bits);
    ASSERT_EQ(half_from_float(std::nextafter(middle, high)).bits, next);
    ASSERT_EQ(half_from_float(-middle).bits, 0x8000 | ((bits & 1) == 0 ? bits : next));
  }
}

TEST(Half, OverflowGivesInfinityAndUnderflowASignedZero) {
  EXPECT_EQ(half_from_float(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(half_from_float(65519.99f).bits, 0x7BFF);
  EXPECT_EQ(half_from_float(65520.0f).bits, 0x7C00);  // midpoint to 65536: even is infinity
  EXPECT_EQ(half_from_float(-3.4e38f).bits, 0xFC00);
  EXPECT_EQ(half_from_float(0x1p-25f).bits, 0);  // midpoint between 0 and the smallest
  EXPECT_EQ(half_from_float(-0x1p-26f).bits, 0x8000);
  EXPECT_EQ(half_from_float(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
}

#ifdef __FLT16_MANT_DIG__
TEST(Half, AgreesWithTheCompilerOnRandomBits) {
  for (uint64_t i = 0; i < 1'000'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random_bits(1, i)));
    if (std::isnan(value)) continue;
    const auto expected = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(half_from_float(value).bits, expected) << value;
  }
}
#endif

}  // namespace
}  // namespace triptych
