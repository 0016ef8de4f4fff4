// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/decoder_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/device_numbers.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

template <class T>
class DecoderOpsCuda : public GpuTest {};
using Types = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(DecoderOpsCuda, Types);

TYPED_TEST(DecoderOpsCuda, EmbedsTokensAndThoseOfSlots) {
  using T = TypeParam;
  for (const int64_t hidden : {8, 576, 4096}) {
    constexpr int64_t kVocab = 50;
    const auto table = random_numbers<T>(1, kVocab * hidden, 0, 1);
    const std::vector<int32_t> tokens = {3, -1, 49, -3, 0, -1};
    const std::vector<int32_t> last_tokens = {7, 1, 44};
    const auto device_table = to_device(table);
    const auto device_tokens = to_device(tokens);
    const auto device_last = to_device(last_tokens);
    const auto out = to_device(unwritten<T>(6 * hidden));
    launch_embed<T>({.table = device_table.data(),
                     .hidden_size = hidden,
                     .tokens = device_tokens.data(),
                     .last_tokens = device_last.data(),
                     .out = out.data(),
                     .rows = 6},
                    nullptr);
    std::vector<T> expected;
    for (const int64_t id : {3, 7, 49, 44, 0, 7}) {
      expected.insert(expected.end(), table.begin() + id * hidden,
                      table.begin() + (id + 1) * hidden);
    }
    expect_same_bits(to_host(out), expected);
  }
}

TYPED_TEST(DecoderOpsCuda, GathersRows) {
  using T = TypeParam;
  constexpr int64_t kColumns = 2056;
  const auto x = random_numbers<T>(2, 9 * kColumns, 0, 1);
  const std::vector<int32_t> ids = {8, 0, 3, 3};
  const auto device_x = to_device(x);
  const auto device_ids = to_device(ids);
  const auto y = to_device(unwritten<T>(4 * kColumns));
  launch_gather_rows<T>(device_x.data(), device_ids.data(), y.data(), 4, kColumns, nullptr);
  std::vector<T> expected;
  for (const int64_t id : ids) {
    expected.insert(expected.end(), x.begin() + id * kColumns, x.begin() + (id + 1) * kColumns);
  }
  expect_same_bits(to_host(y), expected);
}

TYPED_TEST(DecoderOpsCuda, AddsInPlaceAndElsewhere) {
  using T = TypeParam;
  for (const int64_t count : {8, 2048, 100008}) {
    const auto a = random_numbers<T>(3, count, 0, 1);
    const auto b = random_numbers<T>(4, count, 0.5, 2);
    std::vector<double> expected = doubles(a);
    const auto other = doubles(b);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += other[i];
    const auto device_a = to_device(a);
    const auto device_b = to_device(b);
    const auto y = to_device(unwritten<T>(count));
    launch_add<T>(device_a.data(), device_b.data(), y.data(), count, nullptr);
    expect_rounded_once(to_host(y), expected);
    launch_add<T>(device_a.data(), device_b.data(), device_a.data(), count, nullptr);
    expect_same_bits(to_host(device_a), to_host(y));
  }
}

TYPED_TEST(DecoderOpsCuda, AddsABiasToEveryRow) {
  using T = TypeParam;
  for (const int64_t columns : {8, 3584, 4608}) {
    constexpr int64_t kRows = 5;
    const auto x = random_numbers<T>(5, kRows * columns, 0, 1);
    const auto bias = random_numbers<T>(6, columns, 0, 1);
    auto expected = doubles(x);
    const auto added = doubles(bias);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += added[i % added.size()];
    const auto device_x = to_device(x);
    const auto device_bias = to_device(bias);
    launch_add_bias<T>(device_x.data(), device_bias.data(), kRows, columns, nullptr);
    expect_rounded_once(to_host(device_x), expected);
  }
}

TYPED_TEST(DecoderOpsCuda, SwigluOfInterleavedHalves) {
  using T = TypeParam;
  for (const int64_t columns : {8, 1536, 14336}) {
    constexpr int64_t kRows = 3;
    const auto gate_up = random_numbers<T>(7, kRows * 2 * columns, 0, 4);
    const auto values = doubles(gate_up);
    const auto device = to_device(gate_up);
    const auto y = to_device(unwritten<T>(kRows * columns));
    launch_swiglu<T>({.gate = device.data(),
                      .up = device.data() + columns,
                      .stride = 2 * columns,
                      .y = y.data(),
                      .rows = kRows,
                      .columns = columns},
                     nullptr);
    std::vector<double> expected;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const double g = values[static_cast<size_t>(2 * r * columns + c)];
        const double u = values[static_cast<size_t>((2 * r + 1) * columns + c)];
        expected.push_back(g / (1 + std::exp(-g)) * u);
      }
    }
    expect_rounded_once(to_host(y), expected);
  }
}

TYPED_TEST(DecoderOpsCuda, SwigluOfExtremesIsFinite) {
  using T = TypeParam;
  using R = Rounding<T>;
  std::vector<T> gate;
  for (const float g : {-60000.0f, -200.0f, -90.0f, -88.0f, -0.0f, 0.0f, 90.0f, 60000.0f}) {
    gate.push_back(R::from(g));
  }
  const auto device_gate = to_device(gate);
  const auto up = to_device(std::vector<T>(8, R::from(1.0f)));
  const auto y = to_device(unwritten<T>(8));
  launch_swiglu<T>({.gate = device_gate.data(),
                    .up = up.data(),
                    .stride = 8,
                    .y = y.data(),
                    .rows = 1,
                    .columns = 8},
                   nullptr);
  const auto got = to_host(y);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(R::to(got[i]), 0.0f, 1e-30f) << i;
  EXPECT_EQ(R::to(got[6]), R::to(gate[6]));
  EXPECT_EQ(R::to(got[7]), R::to(gate[7]));
}

TYPED_TEST(DecoderOpsCuda, ConcatenatesCaches) {
  using T = TypeParam;
  constexpr int64_t kHeads = 3;
  constexpr int64_t kDim = 16;
  constexpr int64_t kStride = 5 * kDim;
  const std::vector<int32_t> old_lengths = {0, 5, 700};
  const std::vector<int32_t> added = {4, 1, 2};
  std::vector<int32_t> old_starts;
  std::vector<int32_t> new_lengths;
  std::vector<int32_t> new_starts;
  std::vector<int32_t> row_starts = {0};
  int32_t old_total = 0;
  int32_t new_total = 0;
  for (size_t s = 0; s < added.size(); ++s) {
    old_starts.push_back(old_total);
    new_starts.push_back(new_total);
    new_lengths.push_back(old_lengths[s] + added[s]);
    row_starts.push_back(row_starts.back() + added[s]);
    old_total += old_lengths[s];
    new_total += new_lengths[s];
  }
  const auto old_cache = random_numbers<T>(16, int64_t{old_total} * kHeads * kDim, 0, 1);
  const auto rows = random_numbers<T>(17, row_starts.back() * kStride, 0, 1);
  const auto device_old = to_device(old_cache);
  const auto device_rows = to_device(rows);
  const auto out = to_device(unwritten<T>(int64_t{new_total} * kHeads * kDim));
  std::vector<const T*> old_sequences;
  for (const int32_t start : old_starts) {
    old_sequences.push_back(device_old.data() + start * kHeads * kDim);
  }
  const auto device_old_sequences = to_device(old_sequences);
  const auto device_old_lengths = to_device(old_lengths);
  const auto device_new_starts = to_device(new_starts);
  const auto device_new_lengths = to_device(new_lengths);
  const auto device_row_starts = to_device(row_starts);
  launch_kv_concat<T>({.old_sequences = device_old_sequences.data(),
                       .old_lengths = device_old_lengths.data(),
                       .new_cache = out.data(),
                       .new_starts = device_new_starts.data(),
                       .new_lengths = device_new_lengths.data(),
                       .rows = device_rows.data() + kDim,
                       .stride = kStride,
                       .row_starts = device_row_starts.data(),
                       .num_sequences = 3,
                       .total_tokens = new_total,
                       .num_kv_heads = kHeads,
                       .head_dim = kDim},
                      nullptr);
  std::vector<T> expected;
  for (size_t s = 0; s < added.size(); ++s) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto old = old_cache.begin() + (old_starts[s] * kHeads + h * old_lengths[s]) * kDim;
      expected.insert(expected.end(), old, old + old_lengths[s] * kDim);
      for (int64_t r = row_starts[s]; r < row_starts[s + 1]; ++r) {
        const auto row = rows.begin() + r * kStride + (1 + h) * kDim;
        expected.insert(expected.end(), row, row + kDim);
      }
    }
  }
  expect_same_bits(to_host(out), expected);
}

// Each launch reads what the one before wrote; overlapping launches must not see it early.
TYPED_TEST(DecoderOpsCuda, ChainsOfOverlappingLaunchesWaitForEachOther) {
  using T = TypeParam;
  constexpr int64_t kCount = 64 * 4096;
  // silu(1.278) = 1: nothing grows out of range in 50 products.
  const auto gate = to_device(random_numbers<T>(18, kCount, 1.278, 0.02));
  const auto first = random_numbers<T>(19, kCount, 1, 0.1);
  const auto run = [&](LaunchOrder order) {
    const auto up = to_device(first);
    const Stream stream = make_stream();
    for (int i = 0; i < 50; ++i) {
      launch_swiglu<T>({.gate = gate.data(),
                        .up = up.data(),
                        .stride = 4096,
                        .y = up.data(),
                        .rows = 64,
                        .columns = 4096,
                        .order = i == 0 ? LaunchOrder::kAfterPrevious : order},
                       stream.get());
    }
    return to_host(up);
  };
  expect_same_bits(run(LaunchOrder::kOverlapPrevious), run(LaunchOrder::kAfterPrevious));
}

}  // namespace
}  // namespace triptych
