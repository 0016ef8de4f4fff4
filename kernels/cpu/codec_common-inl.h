// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What the decoders of the weight types share: vector types, loads, and decoding of 4-bit codes.

// Highway compiles this header several times; `#pragma once` would stop after the first.
#if defined(TRIPTYCH_KERNELS_CPU_CODEC_COMMON_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_KERNELS_CPU_CODEC_COMMON_INL_H_
#undef TRIPTYCH_KERNELS_CPU_CODEC_COMMON_INL_H_
#else
#define TRIPTYCH_KERNELS_CPU_CODEC_COMMON_INL_H_
#endif

#include <hwy/highway.h>

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
HWY_INLINE VF load_u8_float(const uint8_t* from) { return hn::ConvertTo(kF, load_u8(from)); }
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

// w = d q + m, rounded once. With 16 lanes the head is a table of the 16 values and decoding a
// permutation; otherwise it is d and m.
#if HWY_TARGET <= HWY_AVX3
struct NibbleHead {
  VF table;
};
HWY_INLINE NibbleHead nibble_head(float d, float m) {
  return {hn::MulAdd(hn::Set(kF, d), hn::Iota(kF, 0.0f), hn::Set(kF, m))};
}
using CentredHead = NibbleHead;
HWY_INLINE CentredHead centred_head(float d) {
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
HWY_INLINE VF nibble_value(const NibbleHead& h, hn::Vec<DI> code) {
  return hn::MulAdd(hn::Set(kF, h.d), hn::ConvertTo(kF, code), hn::Set(kF, h.m));
}
struct CentredHead {
  float d;
};
HWY_INLINE CentredHead centred_head(float d) { return {d}; }
HWY_INLINE VF nibble_value(const CentredHead& h, hn::Vec<DI> code) {
  return hn::Mul(hn::Set(kF, h.d), hn::ConvertTo(kF, hn::Sub(code, hn::Set(DI(), 8))));
}
#endif
template <class Head>
HWY_INLINE void nibble_chunk(const Head& h, const uint8_t* codes, VF* w) {
  const auto mask = hn::Set(DI(), 15);
  TRIPTYCH_UNROLL for (size_t i = 0; i < kParts / 2; ++i) {
    const auto bytes = load_u8(codes + i * kLanes);
    w[i] = nibble_value(h, hn::And(bytes, mask));
    w[i + kParts / 2] = nibble_value(h, hn::ShiftRight<4>(bytes));
  }
}

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRIPTYCH_KERNELS_CPU_CODEC_COMMON_INL_H_
