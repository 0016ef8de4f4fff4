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

#include <cstring>

#include "base/check.h"
#include "kernels/common/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, 16>;  // 16 lanes are the low (or high) nibbles of 16 code bytes
using VF = hn::Vec<DF>;
using DI = hn::RebindToSigned<DF>;
constexpr DF kF;
constexpr size_t kLanes = hn::MaxLanes(DF());
constexpr size_t kChunk = 32;
constexpr size_t kParts = kChunk / kLanes;

// Row data has the alignment of bytes, so everything is loaded as bytes.
template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const uint8_t* from) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), from));
}
HWY_INLINE hn::Vec<DI> load_u8(const uint8_t* from) {
  return hn::PromoteTo(DI(), hn::LoadU(hn::Rebind<uint8_t, DF>(), from));
}
HWY_INLINE VF load_i8(const uint8_t* from) {
  return hn::ConvertTo(kF, hn::PromoteTo(DI(), load_bytes(hn::Rebind<int8_t, DF>(), from)));
}
HWY_INLINE VF load_half(const uint8_t* from) {
  return hn::PromoteTo(kF, load_bytes(hn::Rebind<hwy::float16_t, DF>(), from));
}
// Two neighbouring halves as floats in memory: broadcasting one from there is a plain load, whereas
// broadcasting a half and widening it takes three operations of the busiest unit, the shuffler.
struct HalfPair {
  float values[2];
};
HWY_INLINE HalfPair half_pair(const uint8_t* from) {
  const hn::FixedTag<float, 2> d;
  HalfPair pair;
  hn::StoreU(hn::PromoteTo(d, load_bytes(hn::Rebind<hwy::float16_t, decltype(d)>(), from)), d,
             pair.values);
  return pair;
}

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

// w = d q + m, rounded once. With 16 lanes the head is a table of the 16 values and decoding a
// permutation; otherwise it is d and m.
#if HWY_TARGET <= HWY_AVX3
struct NibbleHead {
  VF table;
};
HWY_INLINE NibbleHead nibble_head(float d, float m) {
  return {hn::MulAdd(hn::Set(kF, d), hn::Iota(kF, 0.0f), hn::Set(kF, m))};
}
HWY_INLINE NibbleHead centred_head(float d) {
  return {hn::Mul(hn::Set(kF, d), hn::Iota(kF, -8.0f))};
}
HWY_INLINE VF nibble_value(const NibbleHead& h, hn::Vec<DI> code) {
  return hn::TableLookupLanes(h.table, hn::IndicesFromVec(kF, code));
}
#else
struct NibbleHead {
  float d, m;
};
HWY_INLINE NibbleHead nibble_head(float d, float m) { return {d, m}; }
HWY_INLINE NibbleHead centred_head(float d) { return {d, -8.0f * d}; }
HWY_INLINE VF nibble_value(const NibbleHead& h, hn::Vec<DI> code) {
  return hn::MulAdd(hn::Set(kF, h.d), hn::ConvertTo(kF, code), hn::Set(kF, h.m));
}
#endif
HWY_INLINE void nibble_chunk(const NibbleHead& h, const uint8_t* codes, VF* w) {
  const auto mask = hn::Set(DI(), 15);
  TRIPTYCH_UNROLL for (size_t i = 0; i < kParts / 2; ++i) {
    const auto bytes = load_u8(codes + i * kLanes);
    w[i] = nibble_value(h, hn::And(bytes, mask));
    w[i + kParts / 2] = nibble_value(h, hn::ShiftRight<4>(bytes));
  }
}

struct Q40Codec {
  static constexpr bool kPlain = false;
  static constexpr size_t kElements = 32, kBytes = 18;
  using Head = NibbleHead;
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
    case DType::kQ6_K:
      return f(Q6KCodec());
  }
}

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRIPTYCH_KERNELS_CPU_CODEC_INL_H_
