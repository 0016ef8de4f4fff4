// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ceilings.h"

#include <gtest/gtest.h>

#include "tests/support/simd_targets.h"

namespace triptych::cpu {
namespace {

// Bounds that hold for one core of any machine of interest: 2 units of 16 lanes at 6 GHz do
// 384 GFLOP/s and load 768 GB/s from the first-level cache, so a loop that the compiler removed or
// operations counted twice show; the lower bounds leave room for sanitizers.
TEST(Ceilings, ArePlausible) {
  ThreadPool pool(1);
  for_each_simd_target([&] {
    const Ceilings ceilings = measure_ceilings(pool, 16LL << 20);
    EXPECT_GT(ceilings.read_bytes_per_s, 1e7);
    EXPECT_LT(ceilings.read_bytes_per_s, 768e9);
    EXPECT_GT(ceilings.f32_flops_per_s, 1e7);
    EXPECT_LT(ceilings.f32_flops_per_s, 384e9);
  });
}

TEST(Ceilings, TinyBuffersAndManyThreadsWork) {
  ThreadPool pool(5);
  EXPECT_GT(measure_ceilings(pool, 4).read_bytes_per_s, 0.0);
}

}  // namespace
}  // namespace triptych::cpu
