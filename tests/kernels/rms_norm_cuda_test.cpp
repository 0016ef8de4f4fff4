// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/rms_norm.h"
#include "tests/support/device_numbers.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

constexpr float kEps = 1e-5f;

struct Shape {
  int64_t num_tokens;
  int64_t hidden_size;
};
std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t tokens : {1, 2, 7, 128}) {
    for (const int64_t hidden : {8, 64, 576, 4096, 8192, 16384, 24576, 32768}) {
      shapes.push_back({tokens, hidden});
    }
  }
  return shapes;
}

// The result is rounded to T once. Before that, in f32: a thread adds at most 32 squares one after
// the other and the block adds threads in 5 + 5 levels of a tree, so the sum is off by at most
// (32 + 10 + 2) * 2^-24 of itself, of which the root passes on one half; rsqrtf, its argument and
// two products add 6 * 2^-24. Together 28 * 2^-24, below a 64th of the rounding to f16.
template <class T>
void expect_norm_of(const std::vector<T>& input, const std::vector<T>& weight,
                    const std::vector<T>& y, const Shape& shape) {
  SCOPED_TRACE(std::string(Rounding<T>::kName) + " [" + std::to_string(shape.num_tokens) + ", " +
               std::to_string(shape.hidden_size) + "]");
  const auto n = static_cast<size_t>(shape.hidden_size);
  std::vector<double> expected = doubles(input);
  const std::vector<double> weights = doubles(weight);
  for (size_t row = 0; row < static_cast<size_t>(shape.num_tokens); ++row) {
    double* values = &expected[row * n];
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += values[i] * values[i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + double{kEps});
    for (size_t i = 0; i < n; ++i) values[i] *= scale * weights[i];
  }
  expect_rounded_once(y, expected);
}

template <class T>
class RmsNormCuda : public GpuTest {};
using Types = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(RmsNormCuda, Types);

TYPED_TEST(RmsNormCuda, MatchesDoublePrecision) {
  using T = TypeParam;
  for (const Shape& shape : all_shapes()) {
    const int64_t count = shape.num_tokens * shape.hidden_size;
    const auto x = random_numbers<T>(1, count, 0.3, 2.0);
    const auto weight = random_numbers<T>(2, shape.hidden_size, 1.0, 0.5);
    const auto device_x = to_device(x);
    const auto device_weight = to_device(weight);
    const auto device_y = to_device(unwritten<T>(count));
    launch_rms_norm<T>({.x = device_x.data(),
                        .weight = device_weight.data(),
                        .y = device_y.data(),
                        .num_tokens = shape.num_tokens,
                        .hidden_size = shape.hidden_size,
                        .eps = kEps},
                       nullptr);
    expect_norm_of(x, weight, to_host(device_y), shape);
  }
}

TYPED_TEST(RmsNormCuda, AddsTheResidualFirstAndMayWriteOverX) {
  using T = TypeParam;
  for (const Shape& shape : all_shapes()) {
    const int64_t count = shape.num_tokens * shape.hidden_size;
    const auto x = random_numbers<T>(3, count, -0.1, 1.0);
    const auto residual = random_numbers<T>(4, count, 0.2, 3.0);
    const auto weight = random_numbers<T>(5, shape.hidden_size, 1.0, 0.5);
    const auto device_x = to_device(x);
    const auto device_residual = to_device(residual);
    const auto device_weight = to_device(weight);
    const Stream stream = make_stream();
    launch_rms_norm<T>({.x = device_x.data(),
                        .residual = device_residual.data(),
                        .weight = device_weight.data(),
                        .y = device_x.data(),
                        .num_tokens = shape.num_tokens,
                        .hidden_size = shape.hidden_size,
                        .eps = kEps},
                       stream.get(), LaunchOrder::kOverlapPrevious);
    const auto sum = to_host(device_residual);
    std::vector<double> exact = doubles(x);  // the exact sum of two numbers fits a double
    const auto other = doubles(residual);
    for (size_t i = 0; i < exact.size(); ++i) exact[i] += other[i];
    expect_rounded_once(sum, exact);
    expect_norm_of(sum, weight, to_host(device_x), shape);
  }
}

TYPED_TEST(RmsNormCuda, RowsOfZerosStayFinite) {
  using T = TypeParam;
  const auto device_x = to_device(std::vector<T>(64, Rounding<T>::from(0.0f)));
  const auto weight = to_device(random_numbers<T>(6, 64, 1.0, 0.5));
  launch_rms_norm<T>({.x = device_x.data(),
                      .weight = weight.data(),
                      .y = device_x.data(),
                      .num_tokens = 1,
                      .hidden_size = 64,
                      .eps = kEps},
                     nullptr);
  for (const T y : to_host(device_x)) EXPECT_EQ(Rounding<T>::to(y), 0.0f);
}

TYPED_TEST(RmsNormCuda, ARowDoesNotDependOnTheOthers) {
  using T = TypeParam;
  constexpr int64_t kHidden = 4096;
  const auto x = random_numbers<T>(7, 300 * kHidden, 0, 1);
  const auto device_x = to_device(x);
  const auto weight = to_device(random_numbers<T>(8, kHidden, 1, 0.5));
  const auto norm = [&](int64_t rows) {
    const auto y = to_device(unwritten<T>(rows * kHidden));
    launch_rms_norm<T>({.x = device_x.data(),
                        .weight = weight.data(),
                        .y = y.data(),
                        .num_tokens = rows,
                        .hidden_size = kHidden,
                        .eps = kEps},
                       nullptr);
    return to_host(y);
  };
  auto together = norm(300);
  together.resize(kHidden);
  expect_same_bits(together, norm(1));
}

// Arguments are judged without a device.
TEST(RmsNormSupports, SaysWhichRequirementFails) {
  alignas(16) static __half memory[16];
  const RmsNormArgs<__half> good{
      .x = memory, .weight = memory, .y = memory, .num_tokens = 1, .hidden_size = 8, .eps = kEps};
  EXPECT_TRUE(rms_norm_supports(good).has_value());
  const auto reason = [](const RmsNormArgs<__half>& args) {
    const Status status = rms_norm_supports(args);
    return status.has_value() ? std::string("supported") : status.error().message;
  };
  auto args = good;
  args.hidden_size = 12;
  EXPECT_NE(reason(args).find("hidden_size 12"), std::string::npos);
  args.hidden_size = 32776;
  EXPECT_NE(reason(args).find("hidden_size 32776"), std::string::npos);
  args = good;
  args.num_tokens = -1;
  EXPECT_NE(reason(args).find("num_tokens -1"), std::string::npos);
  args = good;
  args.x = memory + 1;
  EXPECT_NE(reason(args).find("aligned"), std::string::npos);
  args = good;
  args.residual = memory + 1;
  EXPECT_NE(reason(args).find("residual"), std::string::npos);
  args = good;
  args.weight = nullptr;
  EXPECT_NE(reason(args).find("must be set"), std::string::npos);
}

TEST(RmsNormCost, CountsEveryStreamOnce) {
  __half* const none = nullptr;
  __half some{};
  const RmsNormArgs<__half> plain{.residual = none, .num_tokens = 3, .hidden_size = 8};
  EXPECT_EQ(rms_norm_cost(plain).bytes_read, (3 * 8 + 8) * 2);
  EXPECT_EQ(rms_norm_cost(plain).bytes_written, 3 * 8 * 2);
  const RmsNormArgs<__half> added{.residual = &some, .num_tokens = 3, .hidden_size = 8};
  EXPECT_EQ(rms_norm_cost(added).bytes_read, (2 * 3 * 8 + 8) * 2);
  EXPECT_EQ(rms_norm_cost(added).bytes_written, 2 * 3 * 8 * 2);
}

}  // namespace
}  // namespace triptych
