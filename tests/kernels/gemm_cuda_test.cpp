// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/common/cuda_handles.h"
#include "tests/support/device_numbers.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

template <class T>
class GemmCuda : public GpuTest {};
using Types = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(GemmCuda, Types);

// Sums of k products in f32 are off by at most k * 2^-24 * sum |x w| (about k * 2 / pi here); the
// result is rounded to T once, and the product alone once before y is added to it (the library may
// divide k among blocks and add the parts in T).
TYPED_TEST(GemmCuda, MatchesDoublePrecisionWithStridesAndAccumulation) {
  using T = TypeParam;
  constexpr int64_t kM = 5, kN = 24, kK = 72, kXStride = 80, kYStride = 32;
  const double unit = std::is_same_v<T, __half> ? 0x1p-11 : 0x1p-8;
  const auto x = random_numbers<T>(1, kM * kXStride, 0.0, 1.0);
  const auto w = random_numbers<T>(2, kN * kK, 0.0, 1.0);
  const auto y = random_numbers<T>(3, kM * kYStride, 0.0, 1.0);
  const auto device_x = to_device(x);
  const auto device_w = to_device(w);
  Gemm gemm;
  for (const float beta : {0.0f, 1.0f}) {
    const auto device_y = to_device(y);
    gemm.run<T>({.x = device_x.data(),
                 .x_stride = kXStride,
                 .w = device_w.data(),
                 .y = device_y.data(),
                 .y_stride = kYStride,
                 .m = kM,
                 .n = kN,
                 .k = kK,
                 .beta = beta},
                nullptr);
    std::vector<T> result(y.size());
    TRIPTYCH_CUDA_CHECK(
        cudaMemcpy(result.data(), device_y.data(), device_y.size_bytes(), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < kM; ++i) {
      for (int64_t j = 0; j < kYStride; ++j) {
        const auto at = static_cast<size_t>(i * kYStride + j);
        double expected = static_cast<float>(y[at]);
        double magnitude = std::abs(expected);
        double product = 0;  // what is added to y
        if (j < kN) {
          expected *= beta;
          for (int64_t c = 0; c < kK; ++c) {
            const double term = double{static_cast<float>(x[i * kXStride + c])} *
                                double{static_cast<float>(w[j * kK + c])};
            product += term;
            magnitude += std::abs(term);
          }
          expected += product;
        }
        EXPECT_NEAR(static_cast<float>(result[at]), expected,
                    unit * (std::abs(expected) + std::abs(product)) + kK * 0x1p-24 * magnitude)
            << "row " << i << " column " << j << " beta " << beta;
      }
    }
  }
}

}  // namespace
}  // namespace triptych
