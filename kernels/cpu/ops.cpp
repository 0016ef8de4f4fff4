// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ops.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/cpu/math-inl.h"

#ifndef TRIPTYCH_KERNELS_CPU_OPS_ONCE_
#define TRIPTYCH_KERNELS_CPU_OPS_ONCE_
namespace triptych::cpu {
constexpr int64_t kMaxHeadDim = 1024;  // bounds the table of one token on the stack
}  // namespace triptych::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr DF kF;
constexpr size_t kLanes = hn::MaxLanes(DF());

// Calls f(k, load, store) for each vector of [0, count). The last, partial one goes through a
// buffer: its lanes undergo the same operations as all others.
template <class F>
HWY_INLINE void for_each_vector(size_t count, const F& f) {
  size_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    f([k](const float* from) HWY_ATTR { return hn::LoadU(kF, from + k); },
      [k](VF v, float* to) HWY_ATTR { hn::StoreU(v, kF, to + k); });
  }
  const size_t rest = count - k;
  if (rest == 0) return;
  f(
      [k, rest](const float* from) HWY_ATTR {
        HWY_ALIGN float padded[kLanes] = {};
        std::copy_n(from + k, rest, padded);
        return hn::Load(kF, padded);
      },
      [k, rest](VF v, float* to) HWY_ATTR {
        HWY_ALIGN float padded[kLanes];
        hn::Store(v, kF, padded);
        std::copy_n(padded, rest, to + k);
      });
}

void Add(const float* a, const float* b, float* out, size_t count) {
  for_each_vector(count,
                  [=](auto load, auto store) HWY_ATTR { store(hn::Add(load(a), load(b)), out); });
}

void Swiglu(const float* gate, const float* up, float* out, size_t count) {
  for_each_vector(count, [=](auto load, auto store)
                             HWY_ATTR { store(hn::Mul(silu(kF, load(gate)), load(up)), out); });
}

void RmsNormRow(const float* x, float* residual, const float* weight, float* y, size_t count,
                float eps) {
  // Padding lanes are zero, so they add nothing to the sum.
  VF sum = hn::Zero(kF);
  for_each_vector(count, [&](auto load, auto store) HWY_ATTR {
    VF v = load(x);
    if (residual != nullptr) {
      v = hn::Add(load(residual), v);
      store(v, residual);
    }
    sum = hn::MulAdd(v, v, sum);
  });
  const float mean = hn::GetLane(hn::SumOfLanes(kF, sum)) / static_cast<float>(count);
  const VF scale = hn::Set(kF, 1.0f / std::sqrt(mean + eps));
  const float* from = residual != nullptr ? residual : x;
  for_each_vector(count, [=](auto load, auto store) HWY_ATTR {
    store(hn::Mul(hn::Mul(load(from), scale), load(weight)), y);
  });
}

// cos and sin of position * inv_freq. The product is reduced to [-pi, pi] in double, because a
// float angle of 1e5 has an error of 4e-3.
void RopeTable(double position, const float* inv_freq, size_t count, float* cosines, float* sines) {
  constexpr double kTurn = 2.0 * std::numbers::pi;
  for_each_vector(count, [=](auto load, auto store) HWY_ATTR {
    HWY_ALIGN float angle[kLanes];
    hn::Store(load(inv_freq), kF, angle);
    for (float& a : angle) {
      const double full = position * static_cast<double>(a);
      a = static_cast<float>(full - std::nearbyint(full / kTurn) * kTurn);
    }
    const VF v = hn::Load(kF, angle);
    store(hn::Cos(kF, v), cosines);
    store(hn::Sin(kF, v), sines);
  });
}

void RotateHalfSplit(float* x, const float* cosines, const float* sines, size_t half) {
  for_each_vector(half, [=](auto load, auto store) HWY_ATTR {
    const VF a = load(x);
    const VF b = load(x + half);
    const VF c = load(cosines);
    const VF s = load(sines);
    store(hn::NegMulAdd(b, s, hn::Mul(a, c)), x);
    store(hn::MulAdd(a, s, hn::Mul(b, c)), x + half);
  });
}

void RotateInterleaved(float* x, const float* cosines, const float* sines, size_t half) {
  size_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    VF a;
    VF b;
    hn::LoadInterleaved2(kF, x + 2 * i, a, b);
    const VF c = hn::LoadU(kF, cosines + i);
    const VF s = hn::LoadU(kF, sines + i);
    hn::StoreInterleaved2(hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c)), kF,
                          x + 2 * i);
  }
  for (; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void Rope(const RopeArgs& args) {
  HWY_ALIGN float cosines[kMaxHeadDim / 2];
  HWY_ALIGN float sines[kMaxHeadDim / 2];
  const auto half = static_cast<size_t>(args.head_dim / 2);
  const auto rotate = args.kind == RopeKind::kHalfSplit ? RotateHalfSplit : RotateInterleaved;
  for (size_t t = 0; t < args.positions.size(); ++t) {
    RopeTable(args.positions[t], args.inv_freq.data(), half, cosines, sines);
    float* row = args.x + static_cast<int64_t>(t) * args.x_stride;
    for (int64_t h = 0; h < args.num_heads; ++h) {
      rotate(row + h * args.head_dim, cosines, sines, half);
    }
  }
}

// Up to the last whole vector; returns how many were converted. Without conversion instructions
// Highway's emulation does not cover infinities, so the caller converts everything.
size_t ToHalf(const float* in, Half* out, size_t count) {
#if HWY_TARGET == HWY_SSE4
  (void)in, (void)out, (void)count;
  return 0;
#else
  const hn::Rebind<hwy::float16_t, DF> dh;
  const hn::Repartition<uint8_t, decltype(dh)> du8;
  size_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    const auto half = hn::DemoteTo(dh, hn::LoadU(kF, in + k));
    hn::StoreU(hn::BitCast(du8, half), du8, reinterpret_cast<uint8_t*>(out + k));
  }
  return k;
#endif
}

// The largest value, -inf if there is none.
float MaxValue(const float* values, size_t count) {
  const float lowest = -std::numeric_limits<float>::infinity();
  VF best = hn::Set(kF, lowest);
  size_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    const VF v = hn::LoadU(kF, values + k);
    best = hn::IfThenElse(hn::Gt(v, best), v, best);  // false for NaN
  }
  float max = hn::GetLane(hn::MaxOfLanes(kF, best));
  for (; k < count; ++k) max = values[k] > max ? values[k] : max;
  return max;
}

// Index of the first value equal to `wanted`, count if there is none.
size_t FindFirst(const float* values, size_t count, float wanted) {
  const VF w = hn::Set(kF, wanted);
  size_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    const intptr_t lane = hn::FindFirstTrue(kF, hn::Eq(hn::LoadU(kF, values + k), w));
    if (lane >= 0) return k + static_cast<size_t>(lane);
  }
  while (k < count && values[k] != wanted) ++k;
  return k;
}

// Sum of exp(values - max) in double.
double SumExp(const float* values, size_t count, float max) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const size_t lanes = hn::Lanes(d);
  const auto top = hn::Set(d, static_cast<double>(max));
  auto sum = hn::Zero(d);
  size_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    const auto v = hn::PromoteTo(d, hn::LoadU(narrow, values + k));
    // hn::Exp of NaN is 0.
    sum = hn::Add(sum, hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, hn::Sub(v, top))));
  }
  double total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; k < count; ++k) {
    total += std::exp(static_cast<double>(values[k]) - static_cast<double>(max));
  }
  return total;
}

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::cpu {
namespace {

HWY_EXPORT(Add);
HWY_EXPORT(Swiglu);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(Rope);
HWY_EXPORT(ToHalf);
HWY_EXPORT(MaxValue);
HWY_EXPORT(FindFirst);
HWY_EXPORT(SumExp);

// Below this many elements a thread the norm is shorter than starting the other threads.
constexpr int64_t kNormElementsPerThread = 16384;

}  // namespace

void embed(const WeightView& table, std::span<const int32_t> tokens, float* out) {
  for (const int32_t token : tokens) {
    TRIPTYCH_CHECK(token >= 0 && token < table.rows, "token outside the table");
    dequantize_row(table, token, out);
    out += table.columns;
  }
}

void rms_norm(const RmsNormArgs<float>& args, ThreadPool& pool) {
  const int64_t size = args.hidden_size;
  auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* residual = args.residual != nullptr ? args.residual + t * size : nullptr;
      HWY_DYNAMIC_DISPATCH(RmsNormRow)
      (args.x + t * size, residual, args.weight, args.y + t * size, static_cast<size_t>(size),
       args.eps);
    }
  };
  const int64_t grain = std::max<int64_t>(1, kNormElementsPerThread / std::max<int64_t>(size, 1));
  pool.parallel_for(args.num_tokens, grain, body);
}

void head_norm(float* x, const float* weight, int64_t count, int64_t size, float eps) {
  for (float* end = x + count * size; x != end; x += size) {
    HWY_DYNAMIC_DISPATCH(RmsNormRow)
    (x, nullptr, weight, x, static_cast<size_t>(size), eps);
  }
}

void rope(const RopeArgs& args) {
  TRIPTYCH_CHECK(args.head_dim % 2 == 0 && args.head_dim <= kMaxHeadDim, "unsupported head_dim");
  TRIPTYCH_CHECK(args.inv_freq.size() == static_cast<size_t>(args.head_dim / 2),
                 "one frequency per pair");
  HWY_DYNAMIC_DISPATCH(Rope)(args);
}

void add(const float* a, const float* b, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Add)(a, b, out, static_cast<size_t>(count));
}

void swiglu(const float* gate, const float* up, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Swiglu)(gate, up, out, static_cast<size_t>(count));
}

void to_half(const float* in, Half* out, int64_t count) {
  const auto size = static_cast<size_t>(count);
  size_t k = HWY_DYNAMIC_DISPATCH(ToHalf)(in, out, size);
  for (; k < size; ++k) out[k] = half_from_float(in[k]);
}

int32_t argmax(const float* values, int64_t count) {
  TRIPTYCH_CHECK(count > 0, "argmax of nothing");
  const auto size = static_cast<size_t>(count);
  const float max = HWY_DYNAMIC_DISPATCH(MaxValue)(values, size);
  const size_t index = HWY_DYNAMIC_DISPATCH(FindFirst)(values, size, max);
  return index < size ? static_cast<int32_t>(index) : 0;  // all NaN
}

double log_sum_exp(const float* values, int64_t count) {
  TRIPTYCH_CHECK(count > 0, "log_sum_exp of nothing");
  const auto size = static_cast<size_t>(count);
  const float max = HWY_DYNAMIC_DISPATCH(MaxValue)(values, size);
  return static_cast<double>(max) + std::log(HWY_DYNAMIC_DISPATCH(SumExp)(values, size, max));
}

}  // namespace triptych::cpu
#endif
