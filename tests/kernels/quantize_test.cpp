// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/half.h"
#include "kernels/cpu/linear.h"
#include "tests/support/random_weights.h"

namespace triptych {
namespace {

constexpr DType kBlockTypes[] = {DType::kQ8_0, DType::kQ4_1, DType::kQ4_1_G64};
constexpr float kHalfEpsilon = 0x1p-11f;    // largest relative rounding error of a normal half
constexpr float kHalfSubnormal = 0x1p-25f;  // largest absolute one of a subnormal half

std::vector<std::byte> quantize(const std::vector<float>& values, DType dtype) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> out(static_cast<size_t>(row_bytes(dtype, count)));
  quantize_row(values.data(), count, dtype, out.data());
  return out;
}

std::vector<float> dequantize(const std::vector<std::byte>& row, DType dtype, int64_t columns) {
  std::vector<float> out(static_cast<size_t>(columns));
  cpu::dequantize_row({row.data(), dtype, 1, columns}, 0, out.data());
  return out;
}

std::vector<float> round_trip(const std::vector<float>& values, DType dtype) {
  return dequantize(quantize(values, dtype), dtype, static_cast<int64_t>(values.size()));
}

float read_half(const std::byte* at) {
  Half half;
  std::memcpy(&half.bits, at, sizeof(half.bits));
  return half_to_float(half);
}

// |w - w'| <= d / 2 from the nearest code. On top of that the ends of the range move when d and m
// are rounded: 15 d (or 127 d) by d's error, everything by m's error; codes are clamped there.
float error_bound(DType dtype, float d, float m) {
  const float codes = dtype == DType::kQ8_0 ? 127.0f : 15.0f;
  const float d_error = std::max(d * kHalfEpsilon, kHalfSubnormal);
  const float m_error = std::max(std::abs(m) * kHalfEpsilon, kHalfSubnormal);
  const float float_rounding = (codes * d + 2 * std::abs(m)) * 0x1p-22f;  // a few f32 roundings
  return d / 2 + codes * d_error + (dtype == DType::kQ8_0 ? 0.0f : m_error) + float_rounding;
}

TEST(Quantize, ErrorIsWithinHalfAStep) {
  for (const DType dtype : kBlockTypes) {
    const DTypeInfo& info = dtype_info(dtype);
    for (uint64_t seed = 0; seed < 200; ++seed) {
      std::vector<float> values = random_floats(seed, info.block_elements);
      // Magnitudes over 2^-20 .. 2^12 and an offset, so that small d meets large m.
      const auto scale = static_cast<float>(std::exp2(random_uniform(7, seed) * 32 - 20));
      const auto offset = static_cast<float>(random_normal(8, seed)) * 4 * scale;
      for (float& v : values) v = v * scale + offset;
      const auto row = quantize(values, dtype);
      const auto back = dequantize(row, dtype, info.block_elements);
      const float d = read_half(row.data());
      const float m = dtype == DType::kQ8_0 ? 0.0f : read_half(row.data() + 2);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::abs(values[i] - back[i]), error_bound(dtype, d, m))
            << info.name << " seed " << seed << " d " << d << " m " << m;
      }
    }
  }
}

TEST(Quantize, ScaleAndMinimumAreTheRoundedFormula) {
  std::vector<float> values(32);
  for (size_t i = 0; i < 32; ++i) values[i] = -1.5f + 0.1f * static_cast<float>(i);
  const auto q4 = quantize(values, DType::kQ4_1);
  EXPECT_EQ(read_half(q4.data() + 2), half_to_float(half_from_float(-1.5f)));
  EXPECT_EQ(read_half(q4.data()), half_to_float(half_from_float((values[31] + 1.5f) / 15)));
  EXPECT_EQ(std::to_integer<int>(q4[4]), 8 << 4);    // element 0: the minimum; 16: 1.6 / d = 7.7
  EXPECT_EQ(std::to_integer<int>(q4[19]) >> 4, 15);  // element 31 is the maximum
  const auto q8 = quantize(values, DType::kQ8_0);
  EXPECT_EQ(read_half(q8.data()), half_to_float(half_from_float(values[31] / 127)));
  EXPECT_EQ(static_cast<int8_t>(q8[33]), 127);
}

// A block whose codes reach both ends keeps them all. m is taken over exactly; d is recovered from
// the range as long as |m| is not so much larger that the f32 sum loses it.
TEST(Quantize, LosslessOnBlocksAlreadyQuantized) {
  for (const DType dtype : kBlockTypes) {
    const DTypeInfo& info = dtype_info(dtype);
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const RandomWeights weights(seed, dtype, 1, info.block_elements);
      std::vector<std::byte> block(weights.view().data, weights.view().data + info.block_bytes);
      if (dtype == DType::kQ8_0) {
        for (size_t i = 2; i < block.size(); ++i) {
          if (block[i] == std::byte{0x80}) block[i] = std::byte{0x81};  // -128 is never written
        }
        block[2] = std::byte{127};
      } else {
        block[4] = std::byte{0xF0};  // codes 0 and 15
      }
      EXPECT_EQ(quantize(dequantize(block, dtype, info.block_elements), dtype), block)
          << info.name << " seed " << seed;
    }
  }
}

TEST(Quantize, ConstantBlocksAreKeptUpToTheRoundingOfTheMinimum) {
  for (const float value : {0.0f, -0.0f, 1.0f, -0.3f, 123.4f, 1e-5f}) {
    for (const DType dtype : {DType::kQ4_1, DType::kQ4_1_G64}) {
      const auto row = quantize(std::vector<float>(64, value), dtype);
      EXPECT_EQ(read_half(row.data()), 0.0f);  // d = 0 and every code 0
      EXPECT_TRUE(std::all_of(row.begin() + 4, row.begin() + dtype_info(dtype).block_bytes,
                              [](std::byte b) { return b == std::byte{0}; }));
      for (const float w : dequantize(row, dtype, 64)) {
        EXPECT_EQ(w, half_to_float(half_from_float(value)));
      }
    }
  }
  for (const float w : round_trip(std::vector<float>(32, -0.0f), DType::kQ8_0)) EXPECT_EQ(w, 0.0f);
}

// Values whose scale or minimum overflows a half saturate at the largest finite one.
TEST(Quantize, HugeValuesSaturateAndStayFinite) {
  for (const DType dtype : kBlockTypes) {
    std::vector<float> values(64, 1e6f);
    values[0] = -std::numeric_limits<float>::max();
    values[1] = std::numeric_limits<float>::max();
    const auto row = quantize(values, dtype);
    EXPECT_EQ(read_half(row.data()), 65504.0f);
    for (const float w : dequantize(row, dtype, 64)) ASSERT_TRUE(std::isfinite(w));
  }
  for (const float huge : {1e6f, std::numeric_limits<float>::infinity()}) {
    const auto back = round_trip(std::vector<float>(32, huge), DType::kQ4_1);
    for (const float w : back) EXPECT_EQ(w, 65504.0f);  // m saturates, d is 0
  }
}

// Below half of the smallest half the scale is 0 and the block collapses to its minimum.
TEST(Quantize, TinyValuesCollapse) {
  std::vector<float> values = random_floats(3, 64);
  for (float& v : values) v *= 1e-12f;
  for (const DType dtype : kBlockTypes) {
    for (const float w : round_trip(values, dtype)) EXPECT_EQ(w, 0.0f);
  }
}

TEST(Quantize, NotANumberBecomesCodeZeroWithoutTouchingItsNeighbours) {
  std::vector<float> values = random_floats(4, 64);
  for (const size_t at : {size_t{0}, size_t{5}}) {
    for (const DType dtype : kBlockTypes) {
      std::vector<float> with_nan = values;
      std::vector<float> with_zero = values;
      with_nan[at] = std::numeric_limits<float>::quiet_NaN();
      with_zero[at] = 0.0f;  // inside the range of the others, so the scale is the same
      const auto back = round_trip(with_nan, dtype);
      const auto expected = round_trip(with_zero, dtype);
      for (size_t i = 0; i < values.size(); ++i) {
        if (i != at) {
          EXPECT_EQ(back[i], expected[i]);
        }
      }
      EXPECT_TRUE(std::isfinite(back[at]));
    }
  }
  for (const float w : round_trip(std::vector<float>(64, std::nanf("")), DType::kQ4_1)) {
    EXPECT_EQ(w, 0.0f);
  }
}

TEST(Quantize, PlainTypesTakeTheNearestValue) {
  const std::vector<float> values = random_floats(5, 1000);
  EXPECT_EQ(round_trip(values, DType::kF32), values);
  const auto half = round_trip(values, DType::kF16);
  const auto bf16 = round_trip(values, DType::kBF16);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(half[i], half_to_float(half_from_float(values[i])));
    EXPECT_LE(std::abs(bf16[i] - values[i]), std::abs(values[i]) * 0x1p-8f);
    EXPECT_EQ(std::bit_cast<uint32_t>(bf16[i]) & 0xFFFF, 0u);
  }
  EXPECT_EQ(round_trip({1.00390625f}, DType::kBF16)[0], 1.0f);       // tie, even below
  EXPECT_EQ(round_trip({1.01171875f}, DType::kBF16)[0], 1.015625f);  // tie, even above
  EXPECT_TRUE(std::isnan(round_trip({std::nanf("")}, DType::kBF16)[0]));
}

TEST(QuantizeDeathTest, TypesThatAreOnlyRead) {
  const std::vector<float> values(256, 1.0f);
  EXPECT_DEATH(quantize(values, DType::kQ4_0), "read, never written");
  EXPECT_DEATH(quantize(values, DType::kQ6_K), "read, never written");
  EXPECT_DEATH(quantize({1.0f, 2.0f}, DType::kQ8_0), "multiple of the block");
}

}  // namespace
}  // namespace triptych
