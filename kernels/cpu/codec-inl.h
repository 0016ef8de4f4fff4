// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Decoders of the weight types into f32 vectors, compiled once per instruction set. A codec has
//   kElements, kBytes   one block (plain types: 32 elements, so that all share the loops)
//   kPlain              a row may end within a block
//   Head head(block)    what the block's elements share
//   chunk(head, block, c, w)   elements [32 c, 32 c + 32) of the block as kParts vectors, in order

// Highway compiles this header several times; `#pragma once` would stop after the first.
#if defined(TRIPTYCH_KERNELS_CPU_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_KERNELS_CPU_CODEC_INL_H_
#undef TRIPTYCH_KERNELS_CPU_CODEC_INL_H_
#else
#define TRIPTYCH_KERNELS_CPU_CODEC_INL_H_
#endif

#include <hwy/highway.h>

#include "base/check.h"
#include "kernels/common/dtype.h"
#include "kernels/cpu/codec_common-inl.h"
#include "kernels/cpu/codec_k-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

struct F32Codec {
  static constexpr bool kPlain = true;
  static constexpr size_t kElements = 32, kBytes = 128;
  struct Head {};
  static HWY_INLINE Head head(const uint8_t*) { return {}; }
  static HWY_INLINE void chunk(Head, const uint8_t* block, size_t, VF* w) {
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) w[i] =
        load_bytes(kF, block + 4 * i * kLanes);
  }
};

struct F16Codec {
  static constexpr bool kPlain = true;
  static constexpr size_t kElements = 32, kBytes = 64;
  struct Head {};
  static HWY_INLINE Head head(const uint8_t*) { return {}; }
  static HWY_INLINE void chunk(Head, const uint8_t* block, size_t, VF* w) {
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) w[i] = load_half(block + 2 * i * kLanes);
  }
};

struct BF16Codec {
  static constexpr bool kPlain = true;
  static constexpr size_t kElements = 32, kBytes = 64;
  struct Head {};
  static HWY_INLINE Head head(const uint8_t*) { return {}; }
  static HWY_INLINE void chunk(Head, const uint8_t* block, size_t, VF* w) {
    const hn::Rebind<uint16_t, DF> du;
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      const auto bits = hn::PromoteTo(DI(), load_bytes(du, block + 2 * i * kLanes));
      w[i] = hn::BitCast(kF, hn::ShiftLeft<16>(bits));
    }
  }
};

struct Q80Codec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = 32, kBytes = 34;
  using Head = HalfPair;  // d and the first two codes
  static HWY_INLINE Head head(const uint8_t* block) { return half_pair(block); }
  static HWY_INLINE void chunk(const Head& h, const uint8_t* block, size_t, VF* w) {
    const VF d = hn::Set(kF, h.values[0]);
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      w[i] = hn::Mul(d, load_i8(block + 2 + i * kLanes));
    }
  }
};

struct Q40Codec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = 32, kBytes = 18;
  using Head = CentredHead;
  static HWY_INLINE Head head(const uint8_t* block) {
    return centred_head(half_pair(block).values[0]);
  }
  static HWY_INLINE void chunk(const Head& h, const uint8_t* block, size_t, VF* w) {
    nibble_chunk(h, block + 2, w);
  }
};

template <size_t kGroup>
struct Q41Codec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = kGroup, kBytes = 4 + kGroup / 2;
  using Head = NibbleHead;
  static HWY_INLINE Head head(const uint8_t* block) {
    const HalfPair dm = half_pair(block);
    return nibble_head(dm.values[0], dm.values[1]);
  }
  static HWY_INLINE void chunk(const Head& h, const uint8_t* block, size_t c, VF* w) {
    nibble_chunk(h, block + 4 + 16 * c, w);
  }
};

// The 32 codes of a Q5_0 or Q5_1 block: nibbles in 16 bytes, and bit 4 of code j in bit j of
// `high`, which LoadMaskBits may read up to eight bytes of.
HWY_INLINE void five_bit_codes(const uint8_t* high, const uint8_t* low, uint8_t* codes) {
  const hn::FixedTag<uint8_t, 16> d8;
  const auto bytes = hn::LoadU(d8, low);
  const auto bit = hn::Set(d8, 0x10);
  const auto first = hn::IfThenElseZero(hn::LoadMaskBits(d8, high), bit);
  const auto second = hn::IfThenElseZero(hn::LoadMaskBits(d8, high + 2), bit);
  hn::Store(hn::Or(hn::And(bytes, hn::Set(d8, 0x0F)), first), d8, codes);
  hn::Store(hn::Or(hn::ShiftRight<4>(bytes), second), d8, codes + 16);
}

struct Q50Codec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = 32, kBytes = 22;
  using Head = HalfPair;  // d and the first high bits
  static HWY_INLINE Head head(const uint8_t* block) { return half_pair(block); }
  static HWY_INLINE void chunk(const Head& h, const uint8_t* block, size_t, VF* w) {
    HWY_ALIGN uint8_t codes[kChunk];
    five_bit_codes(block + 2, block + 6, codes);
    const VF d = hn::Set(kF, h.values[0]);
    const VF centre = hn::Set(kF, 16.0f);
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      w[i] = hn::Mul(d, hn::Sub(load_u8_float(codes + i * kLanes), centre));
    }
  }
};

struct Q51Codec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = 32, kBytes = 24;
  using Head = HalfPair;  // d and m
  static HWY_INLINE Head head(const uint8_t* block) { return half_pair(block); }
  static HWY_INLINE void chunk(const Head& h, const uint8_t* block, size_t, VF* w) {
    HWY_ALIGN uint8_t codes[kChunk];
    five_bit_codes(block + 4, block + 8, codes);
    const VF d = hn::Set(kF, h.values[0]);
    const VF m = hn::Set(kF, h.values[1]);
    TRIPTYCH_UNROLL for (size_t i = 0; i < kParts; ++i) {
      w[i] = hn::MulAdd(d, load_u8_float(codes + i * kLanes), m);
    }
  }
};

/// Calls f with the codec of `dtype`.
template <class F>
HWY_INLINE void with_codec(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF32:
      return f(F32Codec());
    case DType::kF16:
      return f(F16Codec());
    case DType::kBF16:
      return f(BF16Codec());
    case DType::kQ8_0:
      return f(Q80Codec());
    case DType::kQ4_0:
      return f(Q40Codec());
    case DType::kQ4_1:
      return f(Q41Codec<32>());
    case DType::kQ4_1_G64:
      return f(Q41Codec<64>());
    case DType::kQ5_0:
      return f(Q50Codec());
    case DType::kQ5_1:
      return f(Q51Codec());
    case DType::kQ4_K:
      return f(Q4KCodec());
    case DType::kQ5_K:
      return f(Q5KCodec());
    case DType::kQ6_K:
      return f(Q6KCodec());
  }
}

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRIPTYCH_KERNELS_CPU_CODEC_INL_H_
