// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// AttentionInputs: random queries, keys and values of attention kernels, placed as KvView says, and
// the result in double precision. Slots that no query may read are NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/support/device_numbers.h"

namespace triptych {

struct AttentionSizes {
  int64_t num_q_heads = 4;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 64;
  int64_t page_size = 16;  ///< 0: contiguous.
  int64_t window = 0;
  std::vector<int32_t> kv_lengths;
  std::vector<int32_t> new_tokens;  ///< Of each sequence; empty: one each (decode).

  friend void PrintTo(const AttentionSizes& s, std::ostream* out) {
    *out << s.num_q_heads << '/' << s.num_kv_heads << " heads of " << s.head_dim << ", page "
         << s.page_size << ", window " << s.window << ", lengths";
    for (const int32_t length : s.kv_lengths) *out << ' ' << length;
  }
};

template <class T>
struct AttentionInputs {
  AttentionSizes sizes;
  std::vector<T> q, k, v;
  std::vector<int32_t> row_starts = {0}, starts, table;
  int64_t table_stride = 1;

  /// Values of sequence s depend on `seed` and `identity[s]` (s itself where empty) only.
  AttentionInputs(AttentionSizes s, uint64_t seed, const std::vector<int>& identity)
      : sizes(std::move(s)) {
    int32_t tokens = 0;
    for (int64_t i = 0; i < num_sequences(); ++i) {
      row_starts.push_back(row_starts[i] + (sizes.new_tokens.empty() ? 1 : sizes.new_tokens[i]));
      starts.push_back(tokens);
      tokens += sizes.kv_lengths[i];
    }
    const int64_t slots = sizes.page_size > 0 ? deal_pages(seed) * sizes.page_size : tokens + 1;
    k = v = unwritten<T>(slots * sizes.num_kv_heads * sizes.head_dim);
    q = unwritten<T>(row_starts.back() * q_stride());
    for (int64_t i = 0; i < num_sequences(); ++i) {
      fill(i, seed + 1000 * (1 + static_cast<uint64_t>(identity.empty() ? i : identity[i])));
    }
  }

  [[nodiscard]] int64_t num_sequences() const {
    return static_cast<int64_t>(sizes.kv_lengths.size());
  }
  [[nodiscard]] int64_t width() const { return sizes.num_q_heads * sizes.head_dim; }
  /// Rows of q are wider than the heads, as where q, k and v lie side by side.
  [[nodiscard]] int64_t q_stride() const { return width() + 8; }
  [[nodiscard]] float scale() const { return 1.0f / std::sqrt(static_cast<float>(sizes.head_dim)); }

  struct Expected {
    double value = 0;
    double magnitude = 0;  ///< sum of weight * |v|
  };
  /// Of each element of the result.
  [[nodiscard]] std::vector<Expected> expected() const {
    const auto keys = doubles(k);
    const auto values = doubles(v);
    const auto queries = doubles(q);
    std::vector<Expected> out(static_cast<size_t>(row_starts.back() * width()));
    for (int64_t s = 0; s < num_sequences(); ++s) {
      for (int64_t row = row_starts[s]; row < row_starts[s + 1]; ++row) {
        for (int64_t head = 0; head < sizes.num_q_heads; ++head) {
          attend(s, row, head, &queries[row * q_stride() + head * sizes.head_dim], keys, values,
                 &out[row * width() + head * sizes.head_dim]);
        }
      }
    }
    return out;
  }

 private:
  void attend(int64_t s, int64_t row, int64_t head, const double* query,
              const std::vector<double>& keys, const std::vector<double>& values,
              Expected* out) const {
    if (sizes.kv_lengths[s] == 0) return;
    const int64_t position = sizes.kv_lengths[s] - row_starts[s + 1] + row;
    const int64_t begin = sizes.window > 0 ? std::max<int64_t>(0, position - sizes.window + 1) : 0;
    const int64_t kv_head = head / (sizes.num_q_heads / sizes.num_kv_heads);
    std::vector<double> weights;
    for (int64_t t = begin; t <= position; ++t) {
      const double* key = &keys[element(s, t, kv_head)];
      double dot = 0;
      for (int64_t d = 0; d < sizes.head_dim; ++d) dot += query[d] * key[d];
      weights.push_back(dot * double{scale()});
    }
    const double max = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& w : weights) sum += w = std::exp(w - max);
    for (int64_t t = begin; t <= position; ++t) {
      const double* value = &values[element(s, t, kv_head)];
      const double weight = weights[t - begin] / sum;
      for (int64_t d = 0; d < sizes.head_dim; ++d) {
        out[d].value += weight * value[d];
        out[d].magnitude += weight * std::abs(value[d]);
      }
    }
  }

  // Pages of all sequences in a scattered order, with a few that none has; returns how many there
  // are. Entries of the table that must not be read are -1.
  int64_t deal_pages(uint64_t seed) {
    int64_t pages = 3;
    for (const int32_t length : sizes.kv_lengths) {
      const int64_t needed = (length + sizes.page_size - 1) / sizes.page_size;
      pages += needed;
      table_stride = std::max(table_stride, needed + 1);
    }
    std::vector<int32_t> order(static_cast<size_t>(pages));
    for (int64_t i = 0; i < pages; ++i) order[i] = static_cast<int32_t>(i);
    for (uint64_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_bits(seed + 77, i) % i]);
    }
    table.assign(static_cast<size_t>(num_sequences() * table_stride), -1);
    size_t next = 0;
    for (int64_t s = 0; s < num_sequences(); ++s) {
      for (int64_t p = 0; p * sizes.page_size < sizes.kv_lengths[s]; ++p) {
        table[s * table_stride + p] = order[next++];
      }
    }
    return pages;
  }

  [[nodiscard]] int64_t element(int64_t s, int64_t t, int64_t kv_head) const {
    const int64_t heads = sizes.num_kv_heads;
    const int64_t length = sizes.kv_lengths[s];
    if (sizes.page_size == 0) {
      return (starts[s] * heads + kv_head * length + t) * sizes.head_dim;
    }
    const int64_t page = table[s * table_stride + t / sizes.page_size];
    return ((page * heads + kv_head) * sizes.page_size + t % sizes.page_size) * sizes.head_dim;
  }

  void fill(int64_t s, uint64_t seed) {
    const int64_t rows = row_starts[s + 1] - row_starts[s];
    const int64_t oldest = sizes.kv_lengths[s] - rows - sizes.window + 1;
    const int64_t begin = sizes.window > 0 ? std::max<int64_t>(0, oldest) : 0;
    const int64_t count = std::max<int64_t>(0, sizes.kv_lengths[s] - begin);
    const int64_t slice = sizes.num_kv_heads * sizes.head_dim;
    const auto keys = random_numbers<T>(seed, count * slice, 0.0, 1.5);
    const auto values = random_numbers<T>(seed + 1, count * slice, 0.0, 1.0);
    for (int64_t i = 0; i < count * slice; i += sizes.head_dim) {
      const int64_t at = element(s, begin + i / slice, i % slice / sizes.head_dim);
      std::copy_n(&keys[i], sizes.head_dim, &k[at]);
      std::copy_n(&values[i], sizes.head_dim, &v[at]);
    }
    const auto queries = random_numbers<T>(seed + 2, rows * width(), 0.0, 1.5);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(&queries[row * width()], width(), &q[(row_starts[s] + row) * q_stride()]);
    }
  }
};

}  // namespace triptych
