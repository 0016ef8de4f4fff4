// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Products of 64 rows with 32, of operands as in kernels/common/wgmma.cuh; T is __half or
// __nv_bfloat16, sums are f32.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace triptych {

/// c += a b^T: a has 64 rows, b 32, of 16 numbers each. c[j][i] are the sums with rows 8 j to 8 j +
/// 7 of b.
template <class T>
__device__ void add_products(float (&c)[4][4], uint64_t a, uint64_t b) {
#define TRIPTYCH_SUMS(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define TRIPTYCH_PRODUCT(type)                                                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type              \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14,"     \
               " %15}, %16, %17, 1, 1, 1, 0, 0;"                                        \
               : TRIPTYCH_SUMS(0), TRIPTYCH_SUMS(1), TRIPTYCH_SUMS(2), TRIPTYCH_SUMS(3) \
               : "l"(a), "l"(b))
  if constexpr (std::is_same_v<T, __half>) {
    TRIPTYCH_PRODUCT("f16");
  } else {
    TRIPTYCH_PRODUCT("bf16");
  }
#undef TRIPTYCH_PRODUCT
#undef TRIPTYCH_SUMS
}

}  // namespace triptych
