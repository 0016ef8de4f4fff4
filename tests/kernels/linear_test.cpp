// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/ops.h"
#include "tests/support/random_weights.h"
#include "tests/support/simd_targets.h"

namespace triptych::cpu {
namespace {

constexpr float kCanary = -12345.0f;

int64_t valid_columns(DType dtype, int64_t columns) {
  const int64_t block = dtype_info(dtype).block_elements;
  return (columns + block - 1) / block * block;
}

// x of a product, with rows further apart than they are long and starting one float off.
struct Input {
  Input(uint64_t seed, int64_t m, int64_t columns)
      : stride(columns + 3), values(random_floats(seed, m * stride + 1)) {}
  [[nodiscard]] const float* data() const { return values.data() + 1; }
  int64_t stride;
  std::vector<float> values;
};

// y with a margin that must stay as it is.
struct Output {
  Output(int64_t m, int64_t n)
      : rows(m), columns(n), stride(n + 5), values(static_cast<size_t>(m * stride), kCanary) {}
  [[nodiscard]] float at(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * stride + j)];
  }
  [[nodiscard]] bool margin_untouched() const {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = columns; j < stride; ++j) {
        if (at(i, j) != kCanary) return false;
      }
    }
    return true;
  }
  int64_t rows, columns, stride;
  std::vector<float> values;
};

LinearArgs make_args(const Input& x, const WeightView& w, Output& y) {
  return {x.data(), x.stride, y.rows, w, y.values.data(), y.stride};
}

WeightView absolute(const WeightView& w, std::vector<float>& storage) {
  storage.resize(static_cast<size_t>(w.rows * w.columns));
  for (int64_t r = 0; r < w.rows; ++r) {
    dequantize_row(w, r, storage.data() + r * w.columns);
  }
  for (float& v : storage) v = std::abs(v);
  return {reinterpret_cast<const std::byte*>(storage.data()), DType::kF32, w.rows, w.columns};
}

// eps * sum |x w| bounds one rounding of a partial sum. K roundings of random sign add up like a
// random walk, so 4 sqrt(K) of them are four standard deviations; 4 more cover what a short sum
// has besides its additions (decoding d q + m, the product without FMA, the final reduction).
void expect_close(const LinearArgs& args, const Output& got, const Output& want,
                  const Output& magnitude) {
  const double k = 4 * std::sqrt(static_cast<double>(args.w.columns)) + 4;
  const double eps = std::numeric_limits<float>::epsilon() / 2;
  for (int64_t i = 0; i < got.rows; ++i) {
    for (int64_t j = 0; j < got.columns; ++j) {
      ASSERT_NEAR(got.at(i, j), want.at(i, j), k * eps * magnitude.at(i, j) + 1e-30)
          << "row " << i << " column " << j << " of m " << args.m << " n " << args.w.rows << " k "
          << args.w.columns;
    }
  }
}

void check_shape(DType dtype, int64_t m, int64_t n, int64_t k, ThreadPool& pool) {
  const RandomWeights weights(static_cast<uint64_t>(m * 31 + n * 7 + k), dtype, n, k);
  const Input x(99, m, k);
  Input x_abs = x;
  for (float& v : x_abs.values) v = std::abs(v);
  std::vector<float> storage;
  Output want(m, n), magnitude(m, n);
  linear_ref(make_args(x, weights.view(), want));
  linear_ref(make_args(x_abs, absolute(weights.view(), storage), magnitude));
  for_each_simd_target([&] {
    Output got(m, n);
    const LinearArgs args = make_args(x, weights.view(), got);
    linear(args, pool);
    expect_close(args, got, want, magnitude);
    EXPECT_TRUE(got.margin_untouched());
  });
}

class Linear : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Linear,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0,
                                         DType::kQ4_0, DType::kQ4_1, DType::kQ4_1_G64, DType::kQ5_0,
                                         DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K),
                         [](const auto& type) { return std::string(dtype_info(type.param).name); });

TEST_P(Linear, MatchesTheReferenceForEveryM) {
  ThreadPool pool(2);
  for (int64_t m = 1; m <= 20; ++m) {
    check_shape(GetParam(), m, 13 + m % 3, valid_columns(GetParam(), 320), pool);
  }
}

TEST_P(Linear, MatchesTheReferenceForManyShapes) {
  ThreadPool pool(3);
  for (const int64_t k : {32, 64, 320, 576, 768, 1536}) {
    const int64_t columns = valid_columns(GetParam(), k);
    check_shape(GetParam(), 1, 37, columns, pool);
    check_shape(GetParam(), 3, 1, columns, pool);
    check_shape(GetParam(), 37, 29, columns, pool);
  }
  check_shape(GetParam(), 130, 67, valid_columns(GetParam(), 576), pool);
  check_shape(GetParam(), 270, 5, valid_columns(GetParam(), 64), pool);  // two blocks of rows
}

TEST(LinearPlain, ColumnsNeedNoMultiple) {
  ThreadPool pool(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t k : {1, 5, 31, 33, 63, 785}) {
      check_shape(dtype, 1, 9, k, pool);
      check_shape(dtype, 6, 9, k, pool);
      check_shape(dtype, 19, 9, k, pool);
    }
  }
}

// Multiplying by the identity reads single elements; the reference does so in double and exactly.
TEST_P(Linear, DequantizeRowIsExact) {
  const DType dtype = GetParam();
  const int64_t columns = valid_columns(dtype, 256);
  const RandomWeights weights(5, dtype, 3, columns);
  std::vector<float> identity(static_cast<size_t>(columns * columns), 0.0f);
  for (int64_t i = 0; i < columns; ++i) identity[static_cast<size_t>(i * columns + i)] = 1.0f;
  Output want(columns, 3);
  linear_ref({identity.data(), columns, columns, weights.view(), want.values.data(), want.stride});
  for_each_simd_target([&] {
    for (int64_t r = 0; r < 3; ++r) {
      std::vector<float> row(static_cast<size_t>(columns) + 1, kCanary);
      dequantize_row(weights.view(), r, row.data());
      for (int64_t c = 0; c < columns; ++c) {
        ASSERT_EQ(row[static_cast<size_t>(c)], want.at(c, r)) << c;
      }
      ASSERT_EQ(row.back(), kCanary);
    }
  });
}

std::vector<float> run(const Input& x, int64_t m, const WeightView& w, int threads) {
  ThreadPool pool(threads);
  std::vector<float> y(static_cast<size_t>(m * w.rows));
  linear({x.data(), x.stride, m, w, y.data(), w.rows}, pool);
  return y;
}

TEST_P(Linear, BitsDoNotDependOnTheNumberOfThreads) {
  const int64_t columns = valid_columns(GetParam(), 832);
  const RandomWeights weights(6, GetParam(), 101, columns);
  const Input x(7, 40, columns);
  for (const int64_t m : {1, 3, 8, 9, 40}) {
    const auto one = run(x, m, weights.view(), 1);
    for (const int threads : {2, 3, 5}) EXPECT_EQ(run(x, m, weights.view(), threads), one) << m;
  }
}

// A row of y has the same bits for all m up to 8, and again for all m from 9 on.
TEST_P(Linear, BitsOfARowDoNotDependOnTheRowsBesideIt) {
  const int64_t columns = valid_columns(GetParam(), 832);
  const RandomWeights weights(8, GetParam(), 21, columns);
  const Input x(9, 300, columns);
  const auto compare = [&](int64_t m, int64_t more) {
    const auto few = run(x, m, weights.view(), 1);
    auto many = run(x, more, weights.view(), 1);
    many.resize(few.size());
    EXPECT_EQ(few, many) << m << " of " << more;
  };
  for (int64_t m = 1; m < 8; ++m) compare(m, 8);
  for (const int64_t m : {9, 16, 17, 40, 257}) compare(m, 300);
}

TEST(LinearGroup, HasTheBitsOfSeparateCalls) {
  const RandomWeights q(1, DType::kQ4_1, 50, 320);
  const RandomWeights k(2, DType::kF16, 7, 320);
  const RandomWeights v(3, DType::kQ8_0, 13, 320);
  const Input x(4, 20, 320);
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const int64_t m : {1, 8, 20}) {
      std::vector<Output> together, alone;
      for (const int64_t n : {50, 7, 13}) {
        together.emplace_back(m, n);
        alone.emplace_back(m, n);
      }
      const std::vector<LinearArgs> group = {make_args(x, q.view(), together[0]),
                                             make_args(x, k.view(), together[1]),
                                             make_args(x, v.view(), together[2])};
      linear_group(group, pool);
      linear(make_args(x, q.view(), alone[0]), pool);
      linear(make_args(x, k.view(), alone[1]), pool);
      linear(make_args(x, v.view(), alone[2]), pool);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(together[i].values, alone[i].values);
    }
  }
}

TEST(LinearGroup, MembersMayDifferInEverything) {
  const RandomWeights a(1, DType::kQ4_1, 50, 320);
  const RandomWeights b(2, DType::kF16, 7, 64);
  const Input xa(3, 12, 320), xb(4, 30, 64);
  ThreadPool pool(2);
  Output y0(12, 50), y1(30, 7), y2(3, 50), z0(12, 50), z1(30, 7), z2(3, 50);
  const std::vector<LinearArgs> group = {make_args(xa, a.view(), y0), make_args(xb, b.view(), y1),
                                         make_args(xa, a.view(), y2)};
  linear_group(group, pool);
  linear(make_args(xa, a.view(), z0), pool);
  linear(make_args(xb, b.view(), z1), pool);
  linear(make_args(xa, a.view(), z2), pool);
  EXPECT_EQ(y0.values, z0.values);
  EXPECT_EQ(y1.values, z1.values);
  EXPECT_EQ(y2.values, z2.values);
  linear_group({}, pool);
}

// swiglu() and the fused form run the same vector code, so the bits agree.
TEST_P(Linear, GateUpHasTheBitsOfTheUnfusedOperations) {
  const int64_t columns = valid_columns(GetParam(), 320);
  const RandomWeights gate(1, GetParam(), 139, columns);
  const RandomWeights up(2, GetParam(), 139, columns);
  const Input x(3, 40, columns);
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const int64_t m : {1, 5, 8, 9, 40}) {
      for_each_simd_target([&] {
        Output fused(m, 139), g(m, 139), u(m, 139);
        linear_gate_up_swiglu(
            {x.data(), x.stride, m, gate.view(), up.view(), fused.values.data(), fused.stride},
            pool);
        linear(make_args(x, gate.view(), g), pool);
        linear(make_args(x, up.view(), u), pool);
        for (int64_t i = 0; i < m; ++i) {
          float* row = g.values.data() + i * g.stride;
          swiglu(row, u.values.data() + i * u.stride, row, 139);
        }
        EXPECT_EQ(fused.values, g.values) << "m " << m;
      });
    }
  }
}

TEST(LinearNames, SayPathAndType) {
  EXPECT_EQ(linear_kernel_name(DType::kQ4_1, 1), "gemv_q4_1");
  EXPECT_EQ(linear_kernel_name(DType::kQ4_1_G64, 8), "gemv_q4_1_g64");
  EXPECT_EQ(linear_kernel_name(DType::kF16, 9), "gemm_f16");
  for (const DTypeInfo& info : kDTypes) {
    EXPECT_EQ(linear_kernel_name(info.dtype, 1), "gemv_" + std::string(info.name));
    EXPECT_EQ(linear_kernel_name(info.dtype, 512), "gemm_" + std::string(info.name));
  }
  for_each_simd_target([] { EXPECT_FALSE(simd_target().empty()); });
}

TEST(LinearCost, CountsEachByteOnce) {
  const KernelCost cost = linear_cost({.m = 3, .w = {nullptr, DType::kQ4_1, 10, 64}});
  EXPECT_EQ(cost.bytes_read, 10 * 40 + 3 * 64 * 4);
  EXPECT_EQ(cost.bytes_written, 3 * 10 * 4);
  EXPECT_EQ(cost.flops, 2 * 3 * 10 * 64);
}

TEST(LinearDeathTest, ColumnsMustBeWholeBlocks) {
  ThreadPool pool(1);
  const std::vector<float> x(33);
  float y = 0.0f;
  std::vector<std::byte> w(64);
  EXPECT_DEATH(linear({x.data(), 33, 1, {w.data(), DType::kQ8_0, 1, 33}, &y, 1}, pool),
               "multiple of the type's block");
}

}  // namespace
}  // namespace triptych::cpu
