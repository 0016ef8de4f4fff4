// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A QKV layer with a paged cache for the tests of kernels/cuda/stream_linear.h.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/rope.h"
#include "tests/support/stream_layer.h"

namespace triptych {

struct QkvShape {
  int64_t num_q_heads, num_kv_heads, head_dim, k, page_size;
  RopeKind kind;
  bool bias;
};

/// A cache of a few pages whose table is a permutation, and rows at positions of all kinds.
template <class T>
struct QkvCase {
  static constexpr int64_t kPages = 24;
  static constexpr int64_t kStride = 6;  // pages a sequence
  QkvShape shape;
  Layer<T> layer;
  std::vector<T> bias;
  std::vector<int32_t> positions, sequences, table;
  std::vector<float> inv_freq;
  DeviceBuffer<T> device_bias;
  DeviceBuffer<int32_t> device_positions, device_sequences, device_table;
  DeviceBuffer<float> device_inv_freq;

  explicit QkvCase(const QkvShape& s, bool normed = true, int64_t rows = kMaxStreamRows)
      : shape(s),
        layer((s.num_q_heads + 2 * s.num_kv_heads) * s.head_dim, s.k, normed, 1.0, rows),
        bias(random_numbers<T>(11, layer.n, 0.0, 3.0)) {
    for (int32_t row = 0; row < layer.x_rows; ++row) {
      positions.push_back((row * 37 + 5) % static_cast<int32_t>(kStride * s.page_size));
      // The others belong to four sequences, each at a position of its own.
      sequences.push_back(row % 8 == 3 || row >= 96 ? -1 : row % 4);
    }
    for (int32_t i = 0; i < kPages; ++i) table.push_back((i * 7 + 3) % kPages);
    for (int64_t i = 0; i < s.head_dim / 2; ++i) {
      inv_freq.push_back(static_cast<float>(
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim))));
    }
    device_bias = to_device(bias);
    device_positions = to_device(positions);
    device_sequences = to_device(sequences);
    device_table = to_device(table);
    device_inv_freq = to_device(inv_freq);
  }
  [[nodiscard]] int64_t cache_size() const {
    return kPages * shape.num_kv_heads * shape.page_size * shape.head_dim;
  }
  [[nodiscard]] size_t cache_offset(int64_t row, int64_t head) const {
    const auto r = static_cast<size_t>(row);
    const int64_t page =
        table[static_cast<size_t>(sequences[r] * kStride + positions[r] / shape.page_size)];
    return static_cast<size_t>(
        ((page * shape.num_kv_heads + head) * shape.page_size + positions[r] % shape.page_size) *
        shape.head_dim);
  }
  /// Head `head` of [q; k; v], rotated if it is of q or k: [head_dim].
  [[nodiscard]] std::vector<Expected> head(const std::vector<Expected>& sums, int64_t row,
                                           int64_t head) const {
    const int64_t dim = shape.head_dim;
    std::vector<Expected> raw;
    for (int64_t d = 0; d < dim; ++d) {
      raw.push_back(sums[static_cast<size_t>(row * layer.n + head * dim + d)]);
      if (shape.bias) raw.back().value += to_double(bias[static_cast<size_t>(head * dim + d)]);
    }
    if (head >= shape.num_q_heads + shape.num_kv_heads) return raw;
    std::vector<Expected> rotated = raw;
    for (int64_t i = 0; i < dim / 2; ++i) {
      const bool split = shape.kind == RopeKind::kHalfSplit;
      const auto a = static_cast<size_t>(split ? i : 2 * i);
      const auto b = static_cast<size_t>(split ? i + dim / 2 : 2 * i + 1);
      const double angle = static_cast<double>(positions[static_cast<size_t>(row)]) *
                           static_cast<double>(inv_freq[static_cast<size_t>(i)]);
      const double c = std::cos(angle), s = std::sin(angle);
      const double tolerance = raw[a].tolerance + raw[b].tolerance +
                               0x1.0p-20 * (std::abs(raw[a].value) + std::abs(raw[b].value));
      rotated[a] = {raw[a].value * c - raw[b].value * s, tolerance};
      rotated[b] = {raw[a].value * s + raw[b].value * c, tolerance};
    }
    return rotated;
  }
  /// `sums`: of the layer; `before`: what the caches hold.
  void run_and_check(const StreamWeight<T>& w, int64_t m, const std::vector<Expected>& sums,
                     const std::vector<T>& before, cudaStream_t stream) const {
    const int64_t q_columns = shape.num_q_heads * shape.head_dim;
    const auto q = poisoned<T>(m * q_columns);
    const auto k_cache = to_device(before);
    const auto v_cache = to_device(before);
    const StreamQkvArgs<T> args{.input = layer.input(m),
                                .w = &w,
                                .bias = shape.bias ? device_bias.data() : nullptr,
                                .q_out = q.data(),
                                .kv = {.k = k_cache.data(),
                                       .v = v_cache.data(),
                                       .page_table = device_table.data(),
                                       .page_table_stride = kStride,
                                       .page_size = shape.page_size,
                                       .num_kv_heads = shape.num_kv_heads,
                                       .head_dim = shape.head_dim},
                                .num_q_heads = shape.num_q_heads,
                                .positions = device_positions.data(),
                                .row_sequences = device_sequences.data(),
                                .inv_freq = device_inv_freq.data(),
                                .rope_kind = shape.kind};
    ASSERT_TRUE(stream_qkv_supports(args).has_value());
    launch_stream_qkv(args, stream);
    const auto got_q = to_host(q);
    auto got_k = to_host(k_cache);
    auto got_v = to_host(v_cache);
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t h = 0; h < shape.num_q_heads + 2 * shape.num_kv_heads; ++h) {
        const auto want = head(sums, row, h);
        const bool is_q = h < shape.num_q_heads;
        if (!is_q && sequences[static_cast<size_t>(row)] < 0) continue;
        const bool is_k = h < shape.num_q_heads + shape.num_kv_heads;
        const int64_t kv_head = h - shape.num_q_heads - (is_k ? 0 : shape.num_kv_heads);
        const size_t offset = is_q ? static_cast<size_t>(row * q_columns + h * shape.head_dim)
                                   : cache_offset(row, kv_head);
        for (size_t d = 0; d < want.size(); ++d) {
          T got = is_q ? got_q[offset + d] : (is_k ? got_k : got_v)[offset + d];
          expect_near(got, want[d], at(m, row, h * shape.head_dim + static_cast<int64_t>(d)));
          if (!is_q) (is_k ? got_k : got_v)[offset + d] = before[offset + d];
        }
      }
    }
    EXPECT_TRUE(same_bits(got_k, before)) << "keys of other tokens were written, m " << m;
    EXPECT_TRUE(same_bits(got_v, before)) << "values of other tokens were written, m " << m;
  }
};

}  // namespace triptych
