// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// AttentionCase: random attention inputs on the host and on a device, and the result in double
// precision. What no query may read is NaN.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda_handles.h"
#include "kernels/common/half.h"
#include "kernels/cuda/attention.h"

namespace triptych {

/// Bits of T, and what they stand for.
template <class T>
struct Storage;
template <>
struct Storage<__half> {
  static constexpr uint16_t kNan = 0x7E00;
  static constexpr double kRounding = 0x1.0p-11;  ///< Unit roundoff.
  static constexpr double kSmallest = 0x1.0p-24;  ///< Smallest number above 0.
  static uint16_t from_float(float value) { return half_from_float(value).bits; }
  static float to_float(uint16_t bits) { return half_to_float(Half{bits}); }
};
template <>
struct Storage<__nv_bfloat16> {
  static constexpr uint16_t kNan = 0x7FC0;
  static constexpr double kRounding = 0x1.0p-8;
  static constexpr double kSmallest = 0x1.0p-133;
  static uint16_t from_float(float value) {  // to nearest even; finite values only
    const auto bits = std::bit_cast<uint32_t>(value);
    return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
  }
  static float to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

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

template <class V>
DeviceBuffer<V> upload(const std::vector<V>& values) {
  DeviceBuffer<V> buffer(values.size());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(buffer.data(), values.data(), buffer.size_bytes(), cudaMemcpyHostToDevice));
  return buffer;
}
template <class V>
std::vector<V> download(const DeviceBuffer<V>& buffer) {
  std::vector<V> values(buffer.size());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(values.data(), buffer.data(), buffer.size_bytes(), cudaMemcpyDeviceToHost));
  return values;
}

template <class T>
class AttentionCase {
 public:
  using Bits = Storage<T>;

  /// Values of sequence s depend on `seed` and `identity[s]` (s itself where empty) only.
  AttentionCase(AttentionSizes sizes, uint64_t seed, std::vector<int> identity = {})
      : sizes_(std::move(sizes)), seed_(seed), identity_(std::move(identity)) {
    place_rows();
    place_tokens();
    fill();
    upload_all();
  }

  [[nodiscard]] AttentionArgs<T> args() const {
    AttentionArgs<T> args;
    args.q = as_t(device_q_);
    args.q_stride = q_stride();
    args.out = as_t(device_out_);
    args.kv.k = as_t(device_k_);
    args.kv.v = as_t(device_v_);
    if (sizes_.page_size > 0) {
      args.kv.page_table = device_table_.data();
      args.kv.page_table_stride = table_stride_;
      args.kv.page_size = sizes_.page_size;
    } else {
      args.kv.starts = device_starts_.data();
    }
    args.kv.num_kv_heads = sizes_.num_kv_heads;
    args.kv.head_dim = sizes_.head_dim;
    args.num_q_heads = sizes_.num_q_heads;
    args.num_sequences = num_sequences();
    args.kv_lengths = device_lengths_.data();
    args.row_starts = device_row_starts_.data();
    args.rows = row_starts_.back();
    args.max_kv_length = *std::max_element(sizes_.kv_lengths.begin(), sizes_.kv_lengths.end());
    args.scale = scale();
    args.window = sizes_.window;
    args.workspace = device_workspace_.data();
    return args;
  }

  [[nodiscard]] std::vector<uint16_t> result() const { return download(device_out_); }
  /// Bits of the output rows of sequence s.
  [[nodiscard]] std::vector<uint16_t> result_of(int64_t s) const {
    const auto all = result();
    const int64_t width = sizes_.num_q_heads * sizes_.head_dim;
    return {all.begin() + row_starts_[s] * width, all.begin() + row_starts_[s + 1] * width};
  }
  /// So that a result that is not written shows.
  void spoil_result() {
    TRIPTYCH_CUDA_CHECK(cudaMemset(device_out_.data(), 0xFF, device_out_.size_bytes()));
  }

  struct Expected {
    double value = 0;
    double magnitude = 0;  ///< sum of weight * |v|
  };
  /// Of each element of the result.
  [[nodiscard]] const std::vector<Expected>& expected() {
    if (!expected_.empty()) return expected_;
    for (int64_t s = 0; s < num_sequences(); ++s) {
      for (int64_t row = 0; row < row_starts_[s + 1] - row_starts_[s]; ++row) {
        for (int64_t head = 0; head < sizes_.num_q_heads; ++head) {
          const auto part = expected_of(s, row, head);
          expected_.insert(expected_.end(), part.begin(), part.end());
        }
      }
    }
    return expected_;
  }

  [[nodiscard]] int64_t num_sequences() const {
    return static_cast<int64_t>(sizes_.kv_lengths.size());
  }
  [[nodiscard]] const AttentionSizes& sizes() const { return sizes_; }
  [[nodiscard]] int32_t row_start(int64_t s) const { return row_starts_[s]; }

 private:
  // Of one row and query head, for each of head_dim.
  [[nodiscard]] std::vector<Expected> expected_of(int64_t s, int64_t row, int64_t head) const {
    std::vector<Expected> out(static_cast<size_t>(sizes_.head_dim));
    const int64_t length = sizes_.kv_lengths[s];
    const int64_t rows = row_starts_[s + 1] - row_starts_[s];
    if (length == 0) return out;
    const int64_t position = length - rows + row;
    const int64_t begin =
        sizes_.window > 0 ? std::max<int64_t>(0, position - sizes_.window + 1) : 0;
    const int64_t kv_head = head / (sizes_.num_q_heads / sizes_.num_kv_heads);
    std::vector<float> q;
    for (int64_t d = 0; d < sizes_.head_dim; ++d) {
      q.push_back(value(q_, (row_starts_[s] + row) * q_stride() + head * sizes_.head_dim + d));
    }
    std::vector<double> weights;
    double max = -std::numeric_limits<double>::infinity();
    for (int64_t t = begin; t <= position; ++t) {
      const int64_t k = element(s, t, kv_head, 0);
      double dot = 0;
      for (int64_t d = 0; d < sizes_.head_dim; ++d) dot += double{q[d]} * double{value(k_, k + d)};
      weights.push_back(dot * double{scale()});
      max = std::max(max, weights.back());
    }
    double sum = 0;
    for (double& w : weights) sum += w = std::exp(w - max);
    for (int64_t t = begin; t <= position; ++t) {
      const int64_t v = element(s, t, kv_head, 0);
      const double weight = weights[static_cast<size_t>(t - begin)] / sum;
      for (int64_t d = 0; d < sizes_.head_dim; ++d) {
        out[d].value += weight * double{value(v_, v + d)};
        out[d].magnitude += weight * std::abs(double{value(v_, v + d)});
      }
    }
    return out;
  }

  // Rows of q are wider than the heads, as where q, k and v lie side by side.
  [[nodiscard]] int64_t q_stride() const { return sizes_.num_q_heads * sizes_.head_dim + 8; }
  [[nodiscard]] float scale() const {
    return 1.0f / std::sqrt(static_cast<float>(sizes_.head_dim));
  }
  static float value(const std::vector<uint16_t>& bits, int64_t i) {
    return Bits::to_float(bits[static_cast<size_t>(i)]);
  }
  static T* as_t(const DeviceBuffer<uint16_t>& buffer) {
    return reinterpret_cast<T*>(buffer.data());
  }

  void place_rows() {
    row_starts_ = {0};
    for (int64_t s = 0; s < num_sequences(); ++s) {
      row_starts_.push_back(row_starts_.back() +
                            (sizes_.new_tokens.empty() ? 1 : sizes_.new_tokens[s]));
    }
  }

  // Pages of all sequences are dealt out in a scattered order, with a few that none has.
  void place_tokens() {
    int64_t total = 0;
    for (const int32_t length : sizes_.kv_lengths) {
      starts_.push_back(static_cast<int32_t>(total));
      total += length;
    }
    if (sizes_.page_size == 0) {
      cache_elements_ = (total + 1) * sizes_.num_kv_heads * sizes_.head_dim;
      return;
    }
    int64_t pages = 3;
    table_stride_ = 1;
    for (const int32_t length : sizes_.kv_lengths) {
      const int64_t needed = (length + sizes_.page_size - 1) / sizes_.page_size;
      pages += needed;
      table_stride_ = std::max(table_stride_, needed + 1);
    }
    std::vector<int32_t> order(static_cast<size_t>(pages));
    for (int64_t i = 0; i < pages; ++i) order[i] = static_cast<int32_t>(i);
    for (int64_t i = pages - 1; i > 0; --i) {
      std::swap(order[i], order[random_bits(seed_ + 77, i) % static_cast<uint64_t>(i + 1)]);
    }
    table_.assign(static_cast<size_t>(num_sequences() * table_stride_),
                  -1);  // -1: must not be read
    size_t next = 0;
    for (int64_t s = 0; s < num_sequences(); ++s) {
      for (int64_t p = 0; p * sizes_.page_size < sizes_.kv_lengths[s]; ++p) {
        table_[s * table_stride_ + p] = order[next++];
      }
    }
    cache_elements_ = pages * sizes_.num_kv_heads * sizes_.page_size * sizes_.head_dim;
  }

  [[nodiscard]] int64_t element(int64_t s, int64_t t, int64_t kv_head, int64_t d) const {
    const int64_t heads = sizes_.num_kv_heads;
    if (sizes_.page_size == 0) {
      return (starts_[s] * heads + kv_head * sizes_.kv_lengths[s] + t) * sizes_.head_dim + d;
    }
    const int64_t page = table_[s * table_stride_ + t / sizes_.page_size];
    return ((page * heads + kv_head) * sizes_.page_size + t % sizes_.page_size) * sizes_.head_dim +
           d;
  }

  void fill() {
    k_.assign(static_cast<size_t>(cache_elements_), Bits::kNan);
    v_ = k_;
    q_.assign(static_cast<size_t>(row_starts_.back() * q_stride()), Bits::kNan);
    for (int64_t s = 0; s < num_sequences(); ++s) {
      const uint64_t seed = seed_ + 1000 * (1 + (identity_.empty() ? s : identity_[s]));
      const int64_t rows = row_starts_[s + 1] - row_starts_[s];
      const int64_t oldest = sizes_.kv_lengths[s] - rows - sizes_.window + 1;
      const int64_t begin = sizes_.window > 0 ? std::max<int64_t>(0, oldest) : 0;
      uint64_t i = 0;
      for (int64_t t = begin; t < sizes_.kv_lengths[s]; ++t) {
        for (int64_t h = 0; h < sizes_.num_kv_heads; ++h) {
          for (int64_t d = 0; d < sizes_.head_dim; ++d, ++i) {
            k_[element(s, t, h, d)] = normal(seed, i, 1.5);
            v_[element(s, t, h, d)] = normal(seed + 1, i, 1.0);
          }
        }
      }
      const int64_t width = sizes_.num_q_heads * sizes_.head_dim;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t c = 0; c < width; ++c) {
          q_[(row_starts_[s] + row) * q_stride() + c] = normal(seed + 2, row * width + c, 1.5);
        }
      }
    }
  }
  static uint16_t normal(uint64_t seed, uint64_t i, double deviation) {
    return Bits::from_float(static_cast<float>(deviation * random_normal(seed, i)));
  }

  void upload_all() {
    device_q_ = upload(q_);
    device_k_ = upload(k_);
    device_v_ = upload(v_);
    device_out_ = DeviceBuffer<uint16_t>(
        static_cast<size_t>(row_starts_.back() * sizes_.num_q_heads * sizes_.head_dim));
    device_lengths_ = upload(sizes_.kv_lengths);
    device_row_starts_ = upload(row_starts_);
    device_starts_ = upload(starts_);
    device_table_ = upload(table_);
    device_workspace_ = DeviceBuffer<std::byte>(static_cast<size_t>(attention_workspace_bytes(
        num_sequences(), sizes_.num_q_heads, sizes_.num_kv_heads, sizes_.head_dim)));
    TRIPTYCH_CUDA_CHECK(cudaMemset(device_workspace_.data(), 0, device_workspace_.size_bytes()));
    spoil_result();
  }

  AttentionSizes sizes_;
  uint64_t seed_;
  std::vector<int> identity_;
  std::vector<int32_t> row_starts_, starts_, table_;
  int64_t table_stride_ = 0, cache_elements_ = 0;
  std::vector<uint16_t> q_, k_, v_;
  std::vector<Expected> expected_;
  DeviceBuffer<uint16_t> device_q_, device_k_, device_v_, device_out_;
  DeviceBuffer<int32_t> device_lengths_, device_row_starts_, device_starts_, device_table_;
  DeviceBuffer<std::byte> device_workspace_;
};

}  // namespace triptych
