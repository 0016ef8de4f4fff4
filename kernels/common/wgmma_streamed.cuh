// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Products of 64 rows with few, of operands as in kernels/common/wgmma.cuh; T is __half or
// __nv_bfloat16, sums are f32.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace triptych {

// Eight columns of sums are four registers; the operands of the instruction count on from there.
#define TRIPTYCH_SUMS_1(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define TRIPTYCH_SUMS_2(j) TRIPTYCH_SUMS_1(j), TRIPTYCH_SUMS_1(j + 1)
#define TRIPTYCH_SUMS_4(j) TRIPTYCH_SUMS_2(j), TRIPTYCH_SUMS_2(j + 2)
#define TRIPTYCH_SUMS_8(j) TRIPTYCH_SUMS_4(j), TRIPTYCH_SUMS_4(j + 4)
#define TRIPTYCH_SUMS_16(j) TRIPTYCH_SUMS_8(j), TRIPTYCH_SUMS_8(j + 8)
#define TRIPTYCH_NAMES_4 "%0, %1, %2, %3"
#define TRIPTYCH_NAMES_8 \
  TRIPTYCH_NAMES_4       \
  ", %4, %5, %6, %7"
#define TRIPTYCH_NAMES_16 \
  TRIPTYCH_NAMES_8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TRIPTYCH_NAMES_32 \
  TRIPTYCH_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TRIPTYCH_NAMES_64                                                            \
  TRIPTYCH_NAMES_32                                                                  \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TRIPTYCH_PRODUCT(type, rows, names, a_name, b_name, ...)                            \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" rows "k16.f32." type "." type " {" names \
               "}, %" a_name ", %" b_name ", 1, 1, 1, 0, 0;"                                \
               : __VA_ARGS__                                                                \
               : "l"(a), "l"(b))
#define TRIPTYCH_PRODUCT_OF(rows, names, a_name, b_name, ...)           \
  if constexpr (std::is_same_v<T, __half>) {                            \
    TRIPTYCH_PRODUCT("f16", rows, names, a_name, b_name, __VA_ARGS__);  \
  } else {                                                              \
    TRIPTYCH_PRODUCT("bf16", rows, names, a_name, b_name, __VA_ARGS__); \
  }

/// c += a b^T: a has 64 rows, b 8 kColumns, of 16 numbers each.
template <class T, int kColumns>
__device__ void add_products(float (&c)[kColumns][4], uint64_t a, uint64_t b) {
  static_assert(kColumns == 1 || kColumns == 2 || kColumns == 4 || kColumns == 8 || kColumns == 16);
  if constexpr (kColumns == 1) {
    TRIPTYCH_PRODUCT_OF("8", TRIPTYCH_NAMES_4, "4", "5", TRIPTYCH_SUMS_1(0))
  } else if constexpr (kColumns == 2) {
    TRIPTYCH_PRODUCT_OF("16", TRIPTYCH_NAMES_8, "8", "9", TRIPTYCH_SUMS_2(0))
  } else if constexpr (kColumns == 4) {
    TRIPTYCH_PRODUCT_OF("32", TRIPTYCH_NAMES_16, "16", "17", TRIPTYCH_SUMS_4(0))
  } else if constexpr (kColumns == 8) {
    TRIPTYCH_PRODUCT_OF("64", TRIPTYCH_NAMES_32, "32", "33", TRIPTYCH_SUMS_8(0))
  } else {
    TRIPTYCH_PRODUCT_OF("128", TRIPTYCH_NAMES_64, "64", "65", TRIPTYCH_SUMS_16(0))
  }
}

#undef TRIPTYCH_PRODUCT_OF
#undef TRIPTYCH_PRODUCT
#undef TRIPTYCH_NAMES_64
#undef TRIPTYCH_NAMES_32
#undef TRIPTYCH_NAMES_16
#undef TRIPTYCH_NAMES_8
#undef TRIPTYCH_NAMES_4
#undef TRIPTYCH_SUMS_16
#undef TRIPTYCH_SUMS_8
#undef TRIPTYCH_SUMS_4
#undef TRIPTYCH_SUMS_2
#undef TRIPTYCH_SUMS_1

}  // namespace triptych
