// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/decoder_ops.h"
#include "tests/support/device_numbers.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

constexpr float kEps = 1e-5f;
// cos and sin are off by 2^-22 each, two products and a sum in f32 by 2^-24 each, and a norm before
// them by 12 * 2^-24: below 2^-20 of what is rotated.
constexpr double kRotationError = 0x1.0p-20;

template <class T>
class HeadOpsCuda : public GpuTest {};
using Types = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(HeadOpsCuda, Types);

// Heads in double: [rows, heads, head_dim].
struct Heads {
  std::vector<double> values;
  std::vector<double> bound;  // error before rounding
  int64_t heads = 0;
  int64_t head_dim = 0;

  double* head(int64_t row, int64_t h) { return &values[offset(row, h)]; }
  double* head_bound(int64_t row, int64_t h) { return &bound[offset(row, h)]; }
  [[nodiscard]] size_t offset(int64_t row, int64_t h) const {
    return static_cast<size_t>((row * heads + h) * head_dim);
  }
};

void norm_ref(double* x, const std::vector<double>& weight) {
  double squares = 0;
  for (size_t i = 0; i < weight.size(); ++i) squares += x[i] * x[i];
  const double scale =
      1 / std::sqrt(squares / static_cast<double>(weight.size()) + static_cast<double>(kEps));
  for (size_t i = 0; i < weight.size(); ++i) x[i] *= scale * weight[i];
}

void rope_ref(double* x, double* bound, int32_t position, const std::vector<float>& inv_freq,
              RopeKind kind) {
  const size_t half = inv_freq.size();
  for (size_t i = 0; i < half; ++i) {
    const size_t a = kind == RopeKind::kHalfSplit ? i : 2 * i;
    const size_t b = kind == RopeKind::kHalfSplit ? i + half : 2 * i + 1;
    const double angle = static_cast<double>(position) * static_cast<double>(inv_freq[i]);
    const double x_a = x[a];
    const double x_b = x[b];
    x[a] = x_a * std::cos(angle) - x_b * std::sin(angle);
    x[b] = x_b * std::cos(angle) + x_a * std::sin(angle);
    bound[a] += kRotationError * (std::abs(x_a) + std::abs(x_b));
    bound[b] += kRotationError * (std::abs(x_a) + std::abs(x_b));
  }
}

template <class T>
std::vector<double> with_rounding(const Heads& heads) {
  std::vector<double> bound = heads.bound;
  for (size_t i = 0; i < bound.size(); ++i) bound[i] += rounded_once<T>(heads.values[i]);
  return bound;
}

TYPED_TEST(HeadOpsCuda, NormsHeadsAmongOthers) {
  using T = TypeParam;
  for (const int64_t head_dim : {8, 64, 80, 128, 256}) {
    for (const int64_t rows : {1, 3, 700}) {  // the last makes a group of lanes walk several heads
      constexpr int64_t kHeads = 50;
      const int64_t stride = (kHeads + 1) * head_dim;
      const auto x = random_numbers<T>(8, rows * stride, 0.1, 2);
      const auto weight = random_numbers<T>(9, head_dim, 1, 0.3);
      Heads expected{doubles(x), std::vector<double>(x.size()), kHeads + 1, head_dim};
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t h = 0; h < kHeads; ++h) norm_ref(expected.head(r, h), doubles(weight));
      }
      const auto device_x = to_device(x);
      const auto device_weight = to_device(weight);
      launch_head_norm<T>({.x = device_x.data(),
                           .stride = stride,
                           .rows = rows,
                           .num_heads = kHeads,
                           .head_dim = head_dim,
                           .weight = device_weight.data(),
                           .eps = kEps},
                          nullptr);
      expect_near(to_host(device_x), expected.values, with_rounding<T>(expected));
    }
  }
}

TYPED_TEST(HeadOpsCuda, RotatesBothKindsOfPairs) {
  using T = TypeParam;
  for (const RopeKind kind : {RopeKind::kHalfSplit, RopeKind::kInterleaved}) {
    for (const int64_t head_dim : {8, 64, 80, 128, 256}) {
      constexpr int64_t kHeads = 3;
      const std::vector<int32_t> positions = {0, 1, 77, 4095, 131071, (1 << 20) - 1};
      const auto rows = static_cast<int64_t>(positions.size());
      const int64_t stride = (kHeads + 2) * head_dim;
      const auto x = random_numbers<T>(10, rows * stride, 0, 1);
      const auto inv_freq = rope_inverse_frequencies(5e5, head_dim, {});
      Heads expected{doubles(x), std::vector<double>(x.size()), kHeads + 2, head_dim};
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t h = 0; h < kHeads; ++h) {
          rope_ref(expected.head(r, h), expected.head_bound(r, h),
                   positions[static_cast<size_t>(r)], inv_freq, kind);
        }
      }
      const auto device_x = to_device(x);
      const auto device_positions = to_device(positions);
      const auto device_freq = to_device(inv_freq);
      launch_rope<T>({.x = device_x.data(),
                      .stride = stride,
                      .rows = rows,
                      .num_heads = kHeads,
                      .head_dim = head_dim,
                      .positions = device_positions.data(),
                      .inv_freq = device_freq.data(),
                      .kind = kind},
                     nullptr);
      expect_near(to_host(device_x), expected.values, with_rounding<T>(expected));
    }
  }
}

// A paged cache of three sequences whose pages lie in no order, and rows for two of them.
template <class T>
struct PagedCase {
  static constexpr int64_t kPageSize = 16;
  static constexpr int64_t kPagesEach = 4;
  static constexpr int64_t kPages = 13;
  int64_t num_kv_heads;
  int64_t head_dim;
  std::vector<int32_t> table = {12, 3, 7, 0, 5, 1, 9, 2, 11, 4, 6, 8};
  std::vector<int32_t> positions = {15, 16, 17, 40, 0, 63, 5};
  std::vector<int32_t> sequences = {0, 0, 0, 2, 2, 1, -1};
  DeviceBuffer<int32_t> device_table = to_device(table);
  DeviceBuffer<int32_t> device_positions = to_device(positions);
  DeviceBuffer<int32_t> device_sequences = to_device(sequences);
  DeviceBuffer<T> k = to_device(unwritten<T>(cache_size()));
  DeviceBuffer<T> v = to_device(unwritten<T>(cache_size()));

  PagedCase(int64_t heads, int64_t dim) : num_kv_heads(heads), head_dim(dim) {}
  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  [[nodiscard]] int64_t cache_size() const { return kPages * num_kv_heads * kPageSize * head_dim; }
  [[nodiscard]] KvView<T> view() const {
    return {.k = k.data(),
            .v = v.data(),
            .page_table = device_table.data(),
            .page_table_stride = kPagesEach,
            .page_size = kPageSize,
            .num_kv_heads = num_kv_heads,
            .head_dim = head_dim};
  }
  // First element of a row's head in the cache; -1 for a row of no sequence.
  [[nodiscard]] int64_t offset(int64_t row, int64_t head) const {
    const int64_t sequence = sequences[static_cast<size_t>(row)];
    if (sequence < 0) return -1;
    const int64_t position = positions[static_cast<size_t>(row)];
    const int64_t page = table[static_cast<size_t>(sequence * kPagesEach + position / kPageSize)];
    return ((page * num_kv_heads + head) * kPageSize + position % kPageSize) * head_dim;
  }
};

TYPED_TEST(HeadOpsCuda, AppendsRowsToPages) {
  using T = TypeParam;
  for (const int64_t head_dim : {8, 64, 128}) {
    const PagedCase<T> paged(2, head_dim);
    const int64_t stride = 7 * head_dim;
    const auto rows = random_numbers<T>(11, paged.rows() * stride, 0, 1);
    const auto device_rows = to_device(rows);
    const NewKv<T> added{.k = device_rows.data() + head_dim,
                         .v = device_rows.data() + 3 * head_dim,
                         .stride = stride,
                         .rows = paged.rows(),
                         .positions = paged.device_positions.data(),
                         .row_sequences = paged.device_sequences.data()};
    launch_kv_append<T>(added, paged.view(), nullptr);
    auto k = unwritten<T>(paged.cache_size());
    auto v = k;
    for (int64_t r = 0; r < paged.rows(); ++r) {
      for (int64_t h = 0; h < 2; ++h) {
        const int64_t to = paged.offset(r, h);
        if (to < 0) continue;
        const auto from = rows.begin() + r * stride + (1 + h) * head_dim;
        std::copy_n(from, head_dim, k.begin() + to);
        std::copy_n(from + 2 * head_dim, head_dim, v.begin() + to);
      }
    }
    expect_same_bits(to_host(paged.k), k);
    expect_same_bits(to_host(paged.v), v);
  }
}

struct FusedCase {
  int64_t num_q_heads, num_kv_heads, head_dim;
  bool bias, norm;
  RopeKind kind;
};

template <class T>
void check_rope_kv_append(const FusedCase& c, LaunchOrder order) {
  const PagedCase<T> paged(c.num_kv_heads, c.head_dim);
  const int64_t rows = paged.rows();
  const int64_t heads = c.num_q_heads + 2 * c.num_kv_heads;
  const auto qkv = random_numbers<T>(12, rows * heads * c.head_dim, 0, 1);
  const auto bias = random_numbers<T>(13, heads * c.head_dim, 0, 0.5);
  const auto q_norm = random_numbers<T>(14, c.head_dim, 1, 0.3);
  const auto k_norm = random_numbers<T>(15, c.head_dim, 1, 0.3);
  const auto inv_freq = rope_inverse_frequencies(1e4, c.head_dim, {});
  Heads all{doubles(qkv), std::vector<double>(qkv.size()), heads, c.head_dim};
  const auto added = doubles(bias);
  for (size_t i = 0; c.bias && i < all.values.size(); ++i) {
    all.values[i] += added[i % added.size()];
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < c.num_q_heads + c.num_kv_heads; ++h) {
      if (c.norm) norm_ref(all.head(r, h), doubles(h < c.num_q_heads ? q_norm : k_norm));
      rope_ref(all.head(r, h), all.head_bound(r, h), paged.positions[static_cast<size_t>(r)],
               inv_freq, c.kind);
    }
  }
  const auto device_qkv = to_device(qkv);
  const auto device_bias = to_device(bias);
  const auto device_q_norm = to_device(q_norm);
  const auto device_k_norm = to_device(k_norm);
  const auto device_freq = to_device(inv_freq);
  const auto q_out = to_device(unwritten<T>(rows * c.num_q_heads * c.head_dim));
  const Stream stream = make_stream();
  launch_rope_kv_append<T>({.qkv = device_qkv.data(),
                            .rows = rows,
                            .bias = c.bias ? device_bias.data() : nullptr,
                            .q_norm = c.norm ? device_q_norm.data() : nullptr,
                            .k_norm = c.norm ? device_k_norm.data() : nullptr,
                            .eps = kEps,
                            .q_out = q_out.data(),
                            .num_q_heads = c.num_q_heads,
                            .kv = paged.view(),
                            .positions = paged.device_positions.data(),
                            .row_sequences = paged.device_sequences.data(),
                            .inv_freq = device_freq.data(),
                            .kind = c.kind,
                            .order = order},
                           stream.get());
  const auto q = doubles(to_host(q_out));
  auto k = doubles(to_host(paged.k));
  auto v = doubles(to_host(paged.v));
  const auto bound = with_rounding<T>(all);
  // Compares a head and, in a cache, marks it as seen.
  const auto expect_head = [&](double* got, int64_t r, int64_t h) {
    const size_t from = all.offset(r, h);
    for (size_t i = 0; i < static_cast<size_t>(c.head_dim); ++i) {
      ASSERT_NEAR(got[i], all.values[from + i], bound[from + i])
          << "row " << r << " head " << h << " element " << i;
      got[i] = std::nan("");
    }
  };
  auto q_seen = q;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < c.num_q_heads; ++h) {
      expect_head(&q_seen[static_cast<size_t>((r * c.num_q_heads + h) * c.head_dim)], r, h);
    }
    for (int64_t h = 0; h < c.num_kv_heads; ++h) {
      const int64_t to = paged.offset(r, h);
      if (to < 0) continue;
      expect_head(&k[static_cast<size_t>(to)], r, c.num_q_heads + h);
      expect_head(&v[static_cast<size_t>(to)], r, c.num_q_heads + c.num_kv_heads + h);
    }
  }
  const auto untouched = [](double value) { return std::isnan(value); };
  EXPECT_TRUE(std::all_of(k.begin(), k.end(), untouched)) << "keys beside the rows were written";
  EXPECT_TRUE(std::all_of(v.begin(), v.end(), untouched)) << "values beside the rows were written";
}

TYPED_TEST(HeadOpsCuda, RopeKvAppendIsTheSingleOperationsTogether) {
  for (const RopeKind kind : {RopeKind::kHalfSplit, RopeKind::kInterleaved}) {
    for (const int64_t head_dim : {8, 64, 80, 128, 256}) {
      for (const bool bias : {false, true}) {
        for (const bool norm : {false, true}) {
          SCOPED_TRACE("head_dim " + std::to_string(head_dim) + (bias ? " bias" : "") +
                       (norm ? " norm" : ""));
          check_rope_kv_append<TypeParam>({5, 2, head_dim, bias, norm, kind},
                                          LaunchOrder::kOverlapPrevious);
        }
      }
    }
  }
  // So many heads that a group of lanes walks several.
  check_rope_kv_append<TypeParam>({5001, 3, 16, true, true, RopeKind::kHalfSplit},
                                  LaunchOrder::kAfterPrevious);
}

TEST(DecoderOpsSupport, NamesTheSizeThatDoesNotFit) {
  EXPECT_TRUE(decoder_ops_support(4096, 128, 14336).has_value());
  EXPECT_TRUE(decoder_ops_support(8, 8, 8).has_value());
  const auto reason = [](int64_t hidden, int64_t head, int64_t intermediate) {
    const Status status = decoder_ops_support(hidden, head, intermediate);
    return status.has_value() ? std::string() : status.error().message;
  };
  EXPECT_EQ(reason(4100, 128, 8), "hidden_size 4100 on a CUDA device: expected a multiple of 8");
  EXPECT_EQ(reason(4096, 100, 8),
            "head_dim 100 on a CUDA device: expected a multiple of 8 up to 256");
  EXPECT_NE(reason(4096, 264, 8).find("head_dim 264"), std::string::npos);
  EXPECT_NE(reason(4096, 128, 3).find("intermediate_size 3"), std::string::npos);
}

}  // namespace
}  // namespace triptych
