// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/common/half.h"

namespace triptych {
namespace {

constexpr float kHalfMax = 65504.0f;
constexpr float kFloatMax = std::numeric_limits<float>::max();

void store(std::byte* out, const void* value, size_t bytes) { std::memcpy(out, value, bytes); }

// Saturates instead of overflowing: an infinite scale would turn the whole block into NaN.
Half saturated_half(float value) { return half_from_float(std::clamp(value, -kHalfMax, kHalfMax)); }

// The nearest code, ties to even. A scale of 0 (constant block, or one whose scale underflows)
// gives code 0, and so does NaN, which fails both comparisons.
int nearest_code(float value, float scale, int low, int high) {
  if (scale == 0.0f) return 0;
  const float code = std::nearbyint(value / scale);
  if (code >= static_cast<float>(high)) return high;
  if (code > static_cast<float>(low)) return static_cast<int>(code);
  return code <= static_cast<float>(low) ? low : 0;
}

void quantize_q4_1(const float* in, int elements, std::byte* out) {
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  for (int i = 0; i < elements; ++i) {  // NaN fails every comparison and so does not take part
    low = std::min(low, in[i]);
    high = std::max(high, in[i]);
  }
  if (low > high) low = high = 0.0f;             // nothing but NaN
  low = std::clamp(low, -kFloatMax, kFloatMax);  // infinity minus infinity would be NaN
  high = std::clamp(high, -kFloatMax, kFloatMax);
  const Half m = saturated_half(low);
  // Divided before they are subtracted, so that the range of huge values stays finite.
  const Half d = saturated_half(high / 15.0f - low / 15.0f);
  const float scale = half_to_float(d);
  const float offset = half_to_float(m);
  store(out, &d.bits, 2);
  store(out + 2, &m.bits, 2);
  for (int base = 0; base < elements; base += 32) {
    for (int j = 0; j < 16; ++j) {
      const int q0 = nearest_code(in[base + j] - offset, scale, 0, 15);
      const int q1 = nearest_code(in[base + j + 16] - offset, scale, 0, 15);
      out[4 + base / 2 + j] = static_cast<std::byte>(q0 | (q1 << 4));
    }
  }
}

void quantize_q8_0(const float* in, std::byte* out) {
  float absmax = 0.0f;
  for (int i = 0; i < 32; ++i) absmax = std::max(absmax, std::abs(in[i]));
  const Half d = saturated_half(absmax / 127.0f);
  const float scale = half_to_float(d);
  store(out, &d.bits, 2);
  for (int i = 0; i < 32; ++i) {
    out[2 + i] = static_cast<std::byte>(nearest_code(in[i], scale, -127, 127));
  }
}

uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

void quantize_row(const float* in, int64_t columns, DType dtype, std::byte* out) {
  const DTypeInfo& info = dtype_info(dtype);
  TRIPTYCH_CHECK(columns % info.block_elements == 0, "columns must be a multiple of the block");
  const int64_t blocks = columns / info.block_elements;
  if (dtype == DType::kF32) {
    store(out, in, static_cast<size_t>(columns) * sizeof(float));
    return;
  }
  for (int64_t b = 0; b < blocks; ++b) {
    const float* from = in + b * info.block_elements;
    std::byte* to = out + b * info.block_bytes;
    switch (dtype) {
      case DType::kF16: {
        const Half half = half_from_float(*from);
        store(to, &half.bits, 2);
        break;
      }
      case DType::kBF16: {
        const uint16_t bits = bf16_bits(*from);
        store(to, &bits, 2);
        break;
      }
      case DType::kQ8_0:
        quantize_q8_0(from, to);
        break;
      case DType::kQ4_1:
      case DType::kQ4_1_G64:
        quantize_q4_1(from, info.block_elements, to);
        break;
      default:
        TRIPTYCH_CHECK(false, "this type is read, never written");
    }
  }
}

}  // namespace triptych
