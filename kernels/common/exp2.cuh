// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// 2^x in one instruction, as a softmax wants it.
#pragma once

namespace triptych {

/// Within 2 ulp; 0 for -inf and where the result would be below the normal range.
__device__ inline float exp2_flushed(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace triptych
