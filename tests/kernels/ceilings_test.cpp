// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ceilings.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/simd_targets.h"

namespace triptych::cpu {
namespace {

// Bounds that hold for any machine of interest: one core of 2008 reads 1 GB/s and does 1 GFLOP/s,
// and no socket reads 10 TB/s or does 1 PFLOP/s in f32. Emulators and sanitizers stay inside.
TEST(Ceilings, ArePlausible) {
  ThreadPool pool(1);
  for_each_simd_target([&] {
    const Ceilings ceilings = measure_ceilings(pool, 16LL << 20);
    EXPECT_GT(ceilings.read_bytes_per_s, 1e8);
    EXPECT_LT(ceilings.read_bytes_per_s, 1e13);
    EXPECT_GT(ceilings.f32_flops_per_s, 1e8);
    EXPECT_LT(ceilings.f32_flops_per_s, 1e15);
  });
}

// Wider vectors compute more: were the loop removed by the compiler, or its operations not counted
// by width, AVX-512 and SSE4 would report the same.
TEST(Ceilings, WiderVectorsComputeMore) {
  ThreadPool pool(1);
  std::vector<double> rates;  // widest first
  for_each_simd_target([&] { rates.push_back(measure_ceilings(pool, 1 << 20).f32_flops_per_s); });
  if (rates.size() < 2) GTEST_SKIP() << "one instruction set only";
  EXPECT_GT(rates.front(), 1.2 * rates.back());
}

}  // namespace
}  // namespace triptych::cpu
