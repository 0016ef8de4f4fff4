// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ceilings.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/units.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ceilings.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
constexpr DF kF;
constexpr size_t kLanes = hn::MaxLanes(DF());

// Latency 4 times two units needs 8 independent chains; 12 also cover a latency of 5 and 6.
constexpr size_t kChains = 12;

// Sum of `count` floats but for a remainder; returned so that the loads are not removed. Four
// streams read up to half as much again as one: more of the prefetchers and memory banks are at
// work.
float ReadAll(const float* data, size_t count) {
  constexpr size_t kStreams = 4;
  constexpr size_t kVectors = 2;  // of a stream in one step
  const size_t part = count / kStreams;
  hn::Vec<DF> sum[kStreams][kVectors];
  TRIPTYCH_UNROLL for (size_t s = 0; s < kStreams; ++s) {
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) sum[s][v] = hn::Zero(kF);
  }
  for (size_t k = 0; k + kVectors * kLanes <= part; k += kVectors * kLanes) {
    TRIPTYCH_UNROLL for (size_t s = 0; s < kStreams; ++s) {
      TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) {
        sum[s][v] = hn::Add(sum[s][v], hn::LoadU(kF, data + s * part + k + v * kLanes));
      }
    }
  }
  auto total = hn::Zero(kF);
  for (size_t s = 0; s < kStreams; ++s) total = hn::Add(total, hn::Add(sum[s][0], sum[s][1]));
  return hn::GetLane(hn::SumOfLanes(kF, total));
}

// `steps` rounds of kChains multiply-adds on registers. factor and addend come from the caller so
// that the compiler cannot fold them.
float MultiplyAdd(size_t steps, float factor, float addend) {
  const auto f = hn::Set(kF, factor);
  const auto a = hn::Set(kF, addend);
  hn::Vec<DF> chain[kChains];
  TRIPTYCH_UNROLL for (size_t i = 0; i < kChains; ++i) {
    chain[i] = hn::Set(kF, static_cast<float>(i));
  }
  for (size_t step = 0; step < steps; ++step) {
    TRIPTYCH_UNROLL for (size_t i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], f, a);
  }
  for (size_t i = 1; i < kChains; ++i) chain[0] = hn::Add(chain[0], chain[i]);
  return hn::GetLane(hn::SumOfLanes(kF, chain[0]));
}

int64_t FlopsPerStep() { return static_cast<int64_t>(2 * kChains * kLanes); }

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::cpu {
namespace {

HWY_EXPORT(ReadAll);
HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(FlopsPerStep);

// Short repeats and the best of them: on a shared machine a quiet moment of this length turns up.
constexpr int kReadRepeats = 32;
constexpr int kFlopRepeats = 12;
constexpr int64_t kFlopSteps = 1 << 19;  // about 2 ms
constexpr int64_t kPageFloats = 1024;

double best_read_rate(ThreadPool& pool, int64_t buffer_bytes) {
  Scratch scratch;
  const auto count = buffer_bytes / static_cast<int64_t>(sizeof(float));
  float* data = scratch.floats(static_cast<size_t>(count));
  auto fill = [&](int64_t begin, int64_t end, int) { std::fill(data + begin, data + end, 1.0f); };
  pool.parallel_for(count, kPageFloats, fill);
  std::atomic<float> sink{0.0f};
  auto read = [&](int64_t begin, int64_t end, int) {
    const auto floats = static_cast<size_t>(end - begin);
    sink.store(HWY_DYNAMIC_DISPATCH(ReadAll)(data + begin, floats), std::memory_order_relaxed);
  };
  int64_t best_ns = INT64_MAX;
  for (int repeat = 0; repeat < kReadRepeats; ++repeat) {
    const int64_t start = now_ns();
    pool.parallel_for(count, kPageFloats, read);
    best_ns = std::min(best_ns, now_ns() - start);
  }
  return static_cast<double>(count * static_cast<int64_t>(sizeof(float))) * 1e9 /
         static_cast<double>(best_ns);
}

double best_flop_rate(ThreadPool& pool) {
  std::atomic<float> sink{0.5f};
  auto body = [&](int64_t, int64_t, int) {
    // The chains converge to addend / (1 - factor) = 2: no overflow, no subnormals.
    const float factor = sink.load(std::memory_order_relaxed) > 0.0f ? 0.5f : 0.25f;
    const float sum = HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kFlopSteps, factor, 1.0f);
    sink.store(sum, std::memory_order_relaxed);
  };
  int64_t best_ns = INT64_MAX;
  for (int repeat = 0; repeat < kFlopRepeats; ++repeat) {
    const int64_t start = now_ns();
    pool.parallel_for(pool.num_threads(), 1, body);
    best_ns = std::min(best_ns, now_ns() - start);
  }
  const int64_t flops = kFlopSteps * HWY_DYNAMIC_DISPATCH(FlopsPerStep)() * pool.num_threads();
  return static_cast<double>(flops) * 1e9 / static_cast<double>(best_ns);
}

}  // namespace

Ceilings measure_ceilings(ThreadPool& pool, int64_t buffer_bytes) {
  TRIPTYCH_CHECK(buffer_bytes >= static_cast<int64_t>(sizeof(float)), "the buffer is empty");
  return {.read_bytes_per_s = best_read_rate(pool, buffer_bytes),
          .f32_flops_per_s = best_flop_rate(pool)};
}

}  // namespace triptych::cpu
#endif
