// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/cuda/ceilings.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

class CeilingsCuda : public GpuTest {};

// Reading is at least half of what moves in a copy, and no device reads or multiplies faster than
// these bounds of physics: 100 TB/s, 100 Pflop/s.
TEST_F(CeilingsCuda, ArePlausible) {
  const CudaCeilings ceilings = measure_cuda_ceilings();
  EXPECT_GT(ceilings.read_bytes_per_s, ceilings.copy_bytes_per_s / 2);
  EXPECT_LT(ceilings.read_bytes_per_s, 1e14);
  EXPECT_GT(ceilings.copy_bytes_per_s, 1e10);
  EXPECT_LT(ceilings.f16_flops_per_s, 1e17);
  EXPECT_GT(ceilings.f16_flops_per_s, 1e12);
}

}  // namespace
}  // namespace triptych
