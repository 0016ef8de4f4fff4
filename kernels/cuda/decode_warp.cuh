// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// WarpState: one warp's part of decode attention. Tokens are the rows of the tensor-core products
// and query heads of one KV head their columns, so that a group of up to 8 heads costs one product.
#pragma once

#include <cstdint>

#include "kernels/common/exp2.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/decode_tiles.cuh"

namespace triptych::decode {

/// A softmax numerator in the making: sum is that of exp2(score - max).
struct Softmax {
  float max = -INFINITY;
  float sum = 0.0f;
};

/// Weight of a part with maximum `part_max` in a whole with maximum `max`. Parts without keys have
/// no weight, also when there are no keys at all.
__device__ inline float part_weight(float part_max, float max) {
  return part_max == -INFINITY ? 0.0f : exp2_flushed(part_max - max);
}

/// What a warp keeps: queries, running softmax, sums of the values. Lane 4 g + t has the heads 2t
/// and 2t + 1 (of each 8), of the softmax and of the sums.
template <class T, int kDim, int kHeads>
class WarpState {
 public:
  __device__ void load_queries(const T* q, int group, int dim) {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      const int head = 8 * h + g();
#pragma unroll
      for (int c = 0; c < kDim / 8; ++c) {
        const int column = 8 * c + 2 * t();
        const bool there = head < group && column < dim;
        q_[h][c] = there ? __ldcg(reinterpret_cast<const unsigned*>(q + head * dim + column)) : 0;
      }
    }
  }

  /// Takes in one tile: keys at `stage`, values behind them. At least one token is in range.
  __device__ void attend(uint32_t stage, float scale_log2, int token0, TokenRange tokens) {
    float weight[kHeadTiles][4];
    score(stage, scale_log2, weight);
    uint32_t values[kBatch][4];  // on their way while the softmax works
    const uint32_t first = first_value(stage + kTile * kDim * 2);
    load_values(first, 0, values);
    if (token0 < tokens.begin || token0 + kTile > tokens.end) mask(token0, tokens, weight);
    const bool grew = update(weight);
    // Maxima seldom grow; where none does, all factors are 1.
    if (__any_sync(kAllLanes, grew)) shrink();
    add_values(first, weight, values);
  }

  /// Writes the sums of the heads of `group`, [kHeads][stride], and their softmax.
  __device__ void store(float* partial, int stride, float2* sums, int group) {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = softmax_[h][i].sum;
        for (int lanes = 4; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
        const int head = 8 * h + 2 * t() + i;
        if (head >= group) continue;
        if (g() == 0) sums[head] = make_float2(softmax_[h][i].max, sum);
#pragma unroll
        for (int d = 0; d < kDim / 16; ++d) {
          partial[head * stride + 16 * d + g()] = out_[h][d][i];
          partial[head * stride + 16 * d + 8 + g()] = out_[h][d][2 + i];
        }
      }
    }
  }

 private:
  static constexpr int kHeadTiles = kHeads / 8;
  static constexpr int kSteps = kDim / 16;                // of 16 numbers of a row: 4 matrices each
  static constexpr int kBatch = kSteps < 8 ? kSteps : 8;  // steps that are loaded together
  static __device__ int g() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  static __device__ int t() { return static_cast<int>(threadIdx.x) % 4; }

  // weight[h][2 j + i]: the score of token g + 8 j and head 8 h + 2 t + i.
  __device__ void score(uint32_t keys, float scale_log2, float (&weight)[kHeadTiles][4]) const {
    const unsigned lane = threadIdx.x % 32;
    const uint32_t first = keys + tile_byte<kTile>(lane % 16, lane / 16);
    float parts[kHeadTiles][2][4] = {};  // two sums: chains of products half as long
#pragma unroll
    for (int batch = 0; batch < kSteps; batch += kBatch) {
      uint32_t k[kBatch][4];
#pragma unroll
      for (int c = 0; c < kBatch; ++c) {
        load_matrices(k[c], further_chunk<kTile>(first, 2 * (batch + c)));
      }
#pragma unroll
      for (int c = 0; c < kBatch; ++c) {
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h) {
          const uint32_t(&q)[kDim / 8] = q_[h];
          mma_m16n8k16<T>(parts[h][c % 2], k[c][0], k[c][1], k[c][2], k[c][3], q[2 * (batch + c)],
                          q[2 * (batch + c) + 1]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weight[h][i] = (parts[h][0][i] + parts[h][1][i]) * scale_log2;
      }
    }
  }

  static __device__ void mask(int token0, TokenRange tokens, float (&weight)[kHeadTiles][4]) {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!tokens.contains(token0 + g() + i / 2 * 8)) weight[h][i] = -INFINITY;
      }
    }
  }

  // Turns scores into weights relative to the new maximum of their head. Did any of this lane grow?
  __device__ bool update(float (&weight)[kHeadTiles][4]) {
    float max[kHeadTiles][2];
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) max[h][i] = fmaxf(weight[h][i], weight[h][2 + i]);
    }
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) {
#pragma unroll
      for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          max[h][i] = fmaxf(max[h][i], __shfl_xor_sync(kAllLanes, max[h][i], lanes));
        }
      }
    }
    bool grew = false;
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Softmax& softmax = softmax_[h][i];
        grew |= max[h][i] > softmax.max;
        max[h][i] = fmaxf(max[h][i], softmax.max);
        shrink_[h][i] = exp2_flushed(softmax.max - max[h][i]);
        weight[h][i] = exp2_flushed(weight[h][i] - max[h][i]);
        weight[h][2 + i] = exp2_flushed(weight[h][2 + i] - max[h][i]);
        const float sum = weight[h][i] + weight[h][2 + i];
        softmax = {max[h][i], softmax.sum * shrink_[h][i] + sum};
      }
    }
    return grew;
  }

  __device__ void shrink() {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out_[h][d][i] *= shrink_[h][i % 2];
      }
    }
  }

  static __device__ uint32_t first_value(uint32_t values) {
    const unsigned lane = threadIdx.x % 32;
    return values + tile_byte<kTile>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }
  static __device__ void load_values(uint32_t first, int batch, uint32_t (&v)[kBatch][4]) {
#pragma unroll
    for (int d = 0; d < kBatch; ++d) {
      load_matrices_transposed(v[d], further_chunk<kTile>(first, 2 * (batch + d)));
    }
  }

  // `v` holds the first batch.
  __device__ void add_values(uint32_t first, const float (&weight)[kHeadTiles][4],
                             uint32_t (&v)[kBatch][4]) {
    uint32_t p[kHeadTiles][2];
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      p[h][0] = transpose_matrix(pack_pair<T>(weight[h][0], weight[h][1]));
      p[h][1] = transpose_matrix(pack_pair<T>(weight[h][2], weight[h][3]));
    }
#pragma unroll
    for (int batch = 0; batch < kSteps; batch += kBatch) {
      if (batch > 0) load_values(first, batch, v);
#pragma unroll
      for (int d = 0; d < kBatch; ++d) {
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h) {
          mma_m16n8k16<T>(out_[h][batch + d], v[d][0], v[d][1], v[d][2], v[d][3], p[h][0], p[h][1]);
        }
      }
    }
  }

  uint32_t q_[kHeadTiles][kDim / 8];
  Softmax softmax_[kHeadTiles][2];
  float shrink_[kHeadTiles][2];
  float out_[kHeadTiles][kDim / 16][4] = {};
};

}  // namespace triptych::decode
