// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda_handles.h"
#include "kernels/common/half.h"
#include "kernels/rms_norm.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

constexpr float kEps = 1e-5f;
constexpr double kHalfRounding = 0x1.0p-11;  // unit roundoff of f16
constexpr double kHalfSmallest = 0x1.0p-24;  // smallest subnormal of f16

std::vector<Half> random_halves(uint64_t seed, int64_t count, double mean, double deviation) {
  std::vector<Half> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = half_from_float(static_cast<float>(mean + deviation * random_normal(seed, i)));
  }
  return values;
}

DeviceBuffer<Half> to_device(const std::vector<Half>& values) {
  DeviceBuffer<Half> buffer(values.size());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(buffer.data(), values.data(), buffer.size_bytes(), cudaMemcpyHostToDevice));
  return buffer;
}

std::vector<Half> to_host(const DeviceBuffer<Half>& buffer) {
  std::vector<Half> values(buffer.size());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(values.data(), buffer.data(), buffer.size_bytes(), cudaMemcpyDeviceToHost));
  return values;
}

// Both types are the 16 bits of an IEEE binary16.
__half* device_half(const DeviceBuffer<Half>& buffer) {
  return reinterpret_cast<__half*>(buffer.data());
}

struct Shape {
  int64_t num_tokens;
  int64_t hidden_size;
  friend void PrintTo(const Shape& shape, std::ostream* out) {
    *out << '[' << shape.num_tokens << ", " << shape.hidden_size << ']';
  }
};

// The result is rounded to f16 once: half a unit in the last place, kHalfRounding * |y|. Before
// that, in f32: a thread adds at most 32 squares one after the other and the block adds threads in
// 5 + 5 levels of a tree, so the sum is off by at most (32 + 10 + 2) * 2^-24 of itself, of which
// the root passes on one half; rsqrtf, its argument and two products add 6 * 2^-24. Together 28 *
// 2^-24, below a 64th of the f16 rounding. Results near 0 round to a multiple of the smallest
// subnormal.
double tolerance(double y) {
  return kHalfRounding * (1.0 + 0x1.0p-6) * std::abs(y) + kHalfSmallest;
}

void expect_norm_of(const std::vector<Half>& input, const std::vector<Half>& weight,
                    const std::vector<Half>& y, const Shape& shape) {
  const auto n = static_cast<size_t>(shape.hidden_size);
  for (size_t row = 0; row < static_cast<size_t>(shape.num_tokens); ++row) {
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += std::pow(half_to_float(input[row * n + i]), 2.0);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + double{kEps});
    for (size_t i = 0; i < n; ++i) {
      const double expected =
          double{half_to_float(input[row * n + i])} * scale * double{half_to_float(weight[i])};
      ASSERT_NEAR(half_to_float(y[row * n + i]), expected, tolerance(expected))
          << "row " << row << " column " << i;
    }
  }
}

class RmsNormCuda : public GpuTest {};

class RmsNormCudaShapes : public GpuTest, public testing::WithParamInterface<Shape> {
 public:
  static std::vector<Shape> all() {
    std::vector<Shape> shapes;
    for (const int64_t tokens : {1, 2, 7, 128}) {
      for (const int64_t hidden : {8, 64, 576, 4096, 8192, 16384, 24576, 32768}) {
        shapes.push_back({tokens, hidden});
      }
    }
    return shapes;
  }
};

TEST_P(RmsNormCudaShapes, MatchesDoublePrecision) {
  const Shape shape = GetParam();
  const int64_t count = shape.num_tokens * shape.hidden_size;
  const auto x = random_halves(1, count, 0.3, 2.0);
  const auto weight = random_halves(2, shape.hidden_size, 1.0, 0.5);
  const auto device_x = to_device(x);
  const auto device_weight = to_device(weight);
  const auto device_y = to_device(std::vector<Half>(x.size(), Half{0x7E00}));  // NaN: not written
  launch_rms_norm({.x = device_half(device_x),
                   .weight = device_half(device_weight),
                   .y = device_half(device_y),
                   .num_tokens = shape.num_tokens,
                   .hidden_size = shape.hidden_size,
                   .eps = kEps},
                  nullptr);
  expect_norm_of(x, weight, to_host(device_y), shape);
}

TEST_P(RmsNormCudaShapes, AddsTheResidualFirstAndMayWriteOverX) {
  const Shape shape = GetParam();
  const int64_t count = shape.num_tokens * shape.hidden_size;
  const auto x = random_halves(3, count, -0.1, 1.0);
  const auto residual = random_halves(4, count, 0.2, 3.0);
  const auto weight = random_halves(5, shape.hidden_size, 1.0, 0.5);
  const auto device_x = to_device(x);
  const auto device_residual = to_device(residual);
  const auto device_weight = to_device(weight);
  launch_rms_norm({.x = device_half(device_x),
                   .residual = device_half(device_residual),
                   .weight = device_half(device_weight),
                   .y = device_half(device_x),
                   .num_tokens = shape.num_tokens,
                   .hidden_size = shape.hidden_size,
                   .eps = kEps},
                  nullptr);
  const auto sum = to_host(device_residual);
  for (size_t i = 0; i < sum.size(); ++i) {  // the exact sum of two halves fits a double
    const double exact = double{half_to_float(x[i])} + double{half_to_float(residual[i])};
    ASSERT_NEAR(half_to_float(sum[i]), exact, kHalfRounding * std::abs(exact)) << "element " << i;
  }
  expect_norm_of(sum, weight, to_host(device_x), shape);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsNormCudaShapes, testing::ValuesIn(RmsNormCudaShapes::all()),
                         [](const auto& test) {
                           return "t" + std::to_string(test.param.num_tokens) + "_h" +
                                  std::to_string(test.param.hidden_size);
                         });

TEST_F(RmsNormCuda, RowsOfZerosStayFinite) {
  const auto device_x = to_device(std::vector<Half>(64));
  const auto weight = to_device(random_halves(6, 64, 1.0, 0.5));
  launch_rms_norm({.x = device_half(device_x),
                   .weight = device_half(weight),
                   .y = device_half(device_x),
                   .num_tokens = 1,
                   .hidden_size = 64,
                   .eps = kEps},
                  nullptr);
  for (const Half y : to_host(device_x)) EXPECT_EQ(half_to_float(y), 0.0f);
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
