// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What happens to two finished sums of one row of x: the residual, the activation, or bias,
// rotation and the way into the cache.
#pragma once

#include "kernels/common/rope_angle.h"
#include "kernels/common/vector8.cuh"
#include "kernels/cuda/stream_op.h"

namespace triptych {

template <class T>
__device__ T round_to(float value);
template <>
__device__ inline __half round_to<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 round_to<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <class T>
__device__ float load_float(const T* p) {  // past L1: the kernel before may have written it
  const unsigned short bits = __ldcg(reinterpret_cast<const unsigned short*>(p));
  return static_cast<float>(reinterpret_cast<const T&>(bits));
}
template <class T>
__device__ float2 load_float2(const T* p) {
  const uint32_t bits = __ldcg(reinterpret_cast<const uint32_t*>(p));
  return PairType<T>::to_float(reinterpret_cast<const typename PairType<T>::Type&>(bits));
}
template <class T>
__device__ void store_float2(T* p, float2 v) {
  *reinterpret_cast<typename PairType<T>::Type*>(p) = PairType<T>::from_float(v.x, v.y);
}

/// First row of w of a tile.
__device__ inline int stream_tile_row(const StreamTiles& tiles, int tile) {
  const int group = tile / tiles.per_group;
  return group * tiles.group_rows + (tile - group * tiles.per_group) * tiles.step;
}

__device__ inline bool stream_pairs_are_split(const StreamTiles& tiles) { return tiles.split; }

/// Pair `pair` of a tile in row `row` of x: prepare() loads what the result needs beside the sums,
/// early, so that finish() waits for nothing.
template <class T, StreamEpilogue kEpilogue>
class StreamPair;

template <class T>
class StreamPair<T, StreamEpilogue::kLinear> {
 public:
  __device__ void prepare(const StreamOp<T>& op, int tile, int pair, int row) {
    const int column = stream_tile_row(op.tiles, tile) + 2 * pair;
    y_ = column < op.n ? op.y + static_cast<int64_t>(row) * op.n + column : nullptr;
    if (y_ != nullptr && op.accumulate) before_ = load_float2(y_);
  }
  __device__ void finish(float2 sums) {
    if (y_ != nullptr) store_float2(y_, make_float2(before_.x + sums.x, before_.y + sums.y));
  }

 private:
  T* y_ = nullptr;
  float2 before_ = {0.0f, 0.0f};
};

template <class T>
class StreamPair<T, StreamEpilogue::kGateUp> {
 public:
  __device__ void prepare(const StreamOp<T>& op, int tile, int pair, int row) {
    const int columns = op.n / 2;
    const int column = stream_tile_row(op.tiles, tile) + pair;
    y_ = column < columns ? op.y + static_cast<int64_t>(row) * columns + column : nullptr;
  }
  __device__ void finish(float2 sums) {
    if (y_ != nullptr) *y_ = round_to<T>(sums.x / (1.0f + __expf(-sums.x)) * sums.y);
  }

 private:
  T* y_ = nullptr;
};

template <class T>
class StreamPair<T, StreamEpilogue::kQkv> {
 public:
  __device__ void prepare(const StreamOp<T>& op, int tile, int pair, int row) {
    const bool split = stream_pairs_are_split(op.tiles);
    const int head_dim = static_cast<int>(op.kv.head_dim);
    const int num_kv_heads = static_cast<int>(op.kv.num_kv_heads);
    const int column = stream_tile_row(op.tiles, tile) + (split ? pair : 2 * pair);
    distance_ = split ? op.tiles.second : 1;
    const int head = column / head_dim;
    const int d = column - head * head_dim;
    if (op.bias != nullptr) {
      bias_ = {load_float(op.bias + column), load_float(op.bias + column + distance_)};
    }
    const int32_t position = op.positions[row];
    if (head < op.num_q_heads + num_kv_heads) {
      rotation_ = rope_angle(position, op.inv_freq[split ? d : d / 2]);
    }
    if (head < op.num_q_heads) {
      out_ = op.y + (static_cast<int64_t>(row) * op.num_q_heads + head) * head_dim + d;
      return;
    }
    const int32_t sequence = op.row_sequences[row];
    out_ = nullptr;
    if (sequence < 0) return;
    const bool is_k = head < op.num_q_heads + num_kv_heads;
    const int64_t page = position / op.kv.page_size;
    const int64_t slot = position - page * op.kv.page_size;
    const int64_t page_id = op.kv.page_table[sequence * op.kv.page_table_stride + page];
    const int64_t kv_head = head - op.num_q_heads - (is_k ? 0 : num_kv_heads);
    out_ = (is_k ? op.kv.k : op.kv.v) +
           ((page_id * num_kv_heads + kv_head) * op.kv.page_size + slot) * head_dim + d;
  }
  __device__ void finish(float2 sums) {
    if (out_ == nullptr) return;
    const float a = sums.x + bias_.x;
    const float b = sums.y + bias_.y;
    const float2 rotated =
        make_float2(a * rotation_.cos - b * rotation_.sin, a * rotation_.sin + b * rotation_.cos);
    if (distance_ == 1) {
      store_float2(out_, rotated);
    } else {
      out_[0] = round_to<T>(rotated.x);
      out_[distance_] = round_to<T>(rotated.y);
    }
  }

 private:
  T* out_ = nullptr;
  int distance_ = 1;
  float2 bias_ = {0.0f, 0.0f};
  CosSin rotation_;  // of a value: cos 1, sin 0, which leave it as it is
};

}  // namespace triptych
