// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Decoders of the types of 256 elements a block; see codec-inl.h.

// Highway compiles this header several times; `#pragma once` would stop after the first.
#if defined(TRIPTYCH_KERNELS_CPU_CODEC_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_KERNELS_CPU_CODEC_K_INL_H_
#undef TRIPTYCH_KERNELS_CPU_CODEC_K_INL_H_
#else
#define TRIPTYCH_KERNELS_CPU_CODEC_K_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/cpu/codec_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

// d times the scale and -m times the minimum of each chunk of a K type; both exact, 11 + 6 bits.
struct KHead {
  float scales[8];
  float minima[8];
};
HWY_INLINE KHead k_head(const uint8_t* block) {
  const HalfPair dm = half_pair(block);
  uint32_t packed[3];
  std::memcpy(packed, block + 4, sizeof(packed));
  // Four six-bit numbers at a time: scales 0..3, scales 4..7, minima 0..3, minima 4..7.
  const uint32_t numbers[4] = {
      packed[0] & 0x3F3F3F3Fu, (packed[2] & 0x0F0F0F0Fu) | (packed[0] >> 2 & 0x30303030u),
      packed[1] & 0x3F3F3F3Fu, (packed[2] >> 4 & 0x0F0F0F0Fu) | (packed[1] >> 2 & 0x30303030u)};
  uint8_t bytes[16];
  std::memcpy(bytes, numbers, sizeof(bytes));
  KHead h;
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const hn::RebindToSigned<decltype(d)> di;
  TRIPTYCH_UNROLL for (size_t i = 0; i < 8; i += hn::MaxLanes(d)) {
    const auto scales = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, bytes + i)));
    const auto minima = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, bytes + 8 + i)));
    hn::StoreU(hn::Mul(hn::Set(d, dm.values[0]), scales), d, h.scales + i);
    hn::StoreU(hn::Mul(hn::Set(d, -dm.values[1]), minima), d, h.minima + i);
  }
  return h;
}

struct Q4KCodec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = 256, kBytes = 144;
  using Head = KHead;
  static HWY_INLINE Head head(const uint8_t* block) { return k_head(block); }
  static HWY_INLINE void chunk(const Head& h, const uint8_t* block, size_t c, VF* w) {
    const NibbleHead values = nibble_head(h.scales[c], h.minima[c]);
    const uint8_t* codes = block + 16 + c / 2 * 32;
    const int shift = static_cast<int>(c % 2 * 4);
    const auto mask = hn::Set(DI(), 15);
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      const auto bytes = load_u8(codes + i * kLanes);
      w[i] = nibble_value(values, hn::And(hn::ShiftRightSame(bytes, shift), mask));
    }
  }
};

struct Q5KCodec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = 256, kBytes = 176;
  using Head = KHead;
  static HWY_INLINE Head head(const uint8_t* block) { return k_head(block); }
  static HWY_INLINE void chunk(const Head& h, const uint8_t* block, size_t c, VF* w) {
    const hn::CappedTag<uint8_t, kChunk> d8;
    const hn::Repartition<uint16_t, decltype(d8)> d16;
    const uint8_t* high = block + 16;
    const uint8_t* low = block + 48 + c / 2 * 32;
    const int shift = static_cast<int>(c % 2 * 4);
    const auto chunk_bit = hn::Set(d8, static_cast<uint8_t>(1u << c));
    HWY_ALIGN uint8_t codes[kChunk];
    TRIPTYCH_UNROLL for (size_t j = 0; j < kChunk; j += hn::MaxLanes(d8)) {
      const auto l = hn::ShiftRightSame(hn::BitCast(d16, hn::LoadU(d8, low + j)), shift);
      const auto is_set = hn::TestBit(hn::LoadU(d8, high + j), chunk_bit);
      const auto u = hn::IfThenElseZero(is_set, hn::Set(d8, 0x10));
      hn::Store(hn::Or(hn::And(hn::BitCast(d8, l), hn::Set(d8, 0x0F)), u), d8, codes + j);
    }
    const VF d = hn::Set(kF, h.scales[c]);
    const VF m = hn::Set(kF, h.minima[c]);
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      w[i] = hn::MulAdd(d, load_u8_float(codes + i * kLanes), m);
    }
  }
};

// Layout as in GGUF: chunk c takes nibble c % 4 / 2 of the bytes and bit pair c % 4. Codes are put
// together as bytes, where an operation serves 32 elements, and widened from memory.
struct Q6KCodec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = 256, kBytes = 210;
  struct Head {
    float scales[16];  // d times the scale of each 16 elements; exact, 11 + 8 bits
  };
  static HWY_INLINE Head head(const uint8_t* block) {
    Head h;
    const VF d = hn::Set(kF, half_pair(block + 206).values[1]);  // d ends the block
    TRIPTYCH_UNROLL for (size_t i = 0; i < 16; i += kLanes) {
      hn::StoreU(hn::Mul(d, load_i8(block + 192 + i)), kF, h.scales + i);
    }
    return h;
  }
  static HWY_INLINE void chunk(const Head& h, const uint8_t* block, size_t c, VF* w) {
    const hn::CappedTag<uint8_t, kChunk> d8;
    const hn::Repartition<uint16_t, decltype(d8)> d16;
    const hn::RebindToSigned<decltype(d8)> di8;
    const uint8_t* low = block + c / 4 * 64 + c % 2 * 32;
    const uint8_t* high = block + 128 + c / 4 * 32;
    const int low_shift = static_cast<int>(c % 4 / 2 * 4);
    const int high_shift = static_cast<int>(c % 4 * 2);
    HWY_ALIGN uint8_t codes[kChunk];
    TRIPTYCH_UNROLL for (size_t j = 0; j < kChunk; j += hn::MaxLanes(d8)) {
      const auto l = hn::ShiftRightSame(hn::BitCast(d16, hn::LoadU(d8, low + j)), low_shift);
      const auto u = hn::ShiftRightSame(hn::BitCast(d16, hn::LoadU(d8, high + j)), high_shift);
      const auto l4 = hn::And(hn::BitCast(d8, l), hn::Set(d8, 0x0F));
      const auto u2 = hn::And(hn::BitCast(d8, hn::ShiftLeft<4>(u)), hn::Set(d8, 0x30));
      const auto q = hn::Sub(hn::BitCast(di8, hn::Or(l4, u2)), hn::Set(di8, 32));
      hn::Store(hn::BitCast(d8, q), d8, codes + j);
    }
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      w[i] = hn::Mul(hn::Set(kF, h.scales[2 * c + i * kLanes / 16]), load_i8(codes + i * kLanes));
    }
  }
};

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRIPTYCH_KERNELS_CPU_CODEC_K_INL_H_
