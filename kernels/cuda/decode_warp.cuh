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

/// What a warp keeps: queries, one tile, running softmax, sums of the values. Lane 4 g + t has the
/// heads 2t and 2t + 1 (of each 8), of the softmax and of the sums.
/// kHolds: a tile that is taken lies in registers, so that its stage is free; not for rows of 256
/// numbers, which are too long for that.
template <class T, int kDim, int kHeads, bool kHolds>
class WarpState {
 public:
  static_assert(!kHolds || kDim <= 128);

  /// `rows`: kHeads rows in shared memory, laid out by tile_byte.
  __device__ void load_queries(uint32_t rows) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      const uint32_t first = rows + tile_byte<kHeads>(8 * h + lane % 8, lane / 8);
#pragma unroll
      for (int c = 0; c < kDim / 8; c += 4) {
        load_matrices(q_[h][c / 4], further_chunk<kHeads>(first, c));
      }
    }
  }

  /// Takes a tile: keys at `stage`, values behind them.
  __device__ void take(uint32_t stage) {
    stage_ = stage;
    if constexpr (kHolds) {
      load_keys(0);
      load_values(0);
    }
  }

  /// Takes in the tile that was taken, whose first token is token0. At least one is in range.
  __device__ void attend(float scale_log2, int token0, TokenRange tokens) {
    float weight[kHeadTiles][4];
    score(scale_log2, weight);
    if constexpr (!kHolds) load_values(0);  // on their way while the softmax works
    if (token0 < tokens.begin || token0 + kTile > tokens.end) mask(token0, tokens, weight);
    const bool grew = update(weight);
    // Maxima seldom grow; where none does, all factors are 1.
    if (__any_sync(kAllLanes, grew)) shrink();
    add_values(weight);
  }

  /// Maximum and sum of the heads 8 h + 2t (x, y) and 8 h + 2t + 1 (z, w).
  [[nodiscard]] __device__ float4 softmax(int h) const {
    float sums[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] = softmax_[h][i].sum;
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        sums[i] += __shfl_xor_sync(kAllLanes, sums[i], lanes);
      }
    }
    return make_float4(softmax_[h][0].max, sums[0], softmax_[h][1].max, sums[1]);
  }
  /// Number 16 d + g of the heads 8 h + 2t (x) and 8 h + 2t + 1 (y), and number 16 d + 8 + g (z,
  /// w).
  [[nodiscard]] __device__ float4 values(int h, int d) const {
    const float(&v)[4] = out_[h][d];
    return make_float4(v[0], v[1], v[2], v[3]);
  }

  /// Writes the sums of the heads of `group`, [kHeads][stride], and their softmax.
  __device__ void store(float* partial, int stride, float2* sums, int group) const {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      const float4 both = softmax(h);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int head = 8 * h + 2 * t() + i;
        if (head >= group) continue;
        if (g() == 0)
          sums[head] = i == 0 ? make_float2(both.x, both.y) : make_float2(both.z, both.w);
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
  // Sums of the scores of a tile, added in the end: the shorter a chain of products, the sooner.
  static constexpr int kChains = kHeadTiles == 1 ? 4 : 2;
  static __device__ int g() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  static __device__ int t() { return static_cast<int>(threadIdx.x) % 4; }

  __device__ void load_keys(int batch) {
    const unsigned lane = threadIdx.x % 32;
    const uint32_t first = stage_ + tile_byte<kTile>(lane % 16, lane / 16);
#pragma unroll
    for (int c = 0; c < kBatch; ++c) {
      load_matrices(k_[c], further_chunk<kTile>(first, 2 * (batch + c)));
    }
  }
  __device__ void load_values(int batch) {
    const unsigned lane = threadIdx.x % 32;
    const uint32_t first =
        stage_ + kTile * kDim * 2 + tile_byte<kTile>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int d = 0; d < kBatch; ++d) {
      load_matrices_transposed(v_[d], further_chunk<kTile>(first, 2 * (batch + d)));
    }
  }

  // weight[h][2 j + i]: the score of token g + 8 j and head 8 h + 2 t + i.
  __device__ void score(float scale_log2, float (&weight)[kHeadTiles][4]) {
    float parts[kHeadTiles][kChains][4] = {};
#pragma unroll
    for (int batch = 0; batch < kSteps; batch += kBatch) {
      if constexpr (!kHolds) load_keys(batch);
#pragma unroll
      for (int c = 0; c < kBatch; ++c) {
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h) {
          const uint32_t* q = q_[h][(batch + c) / 2] + (batch + c) % 2 * 2;
          mma_m16n8k16<T>(parts[h][c % kChains], k_[c][0], k_[c][1], k_[c][2], k_[c][3], q[0],
                          q[1]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = parts[h][0][i] + parts[h][1][i];
        if constexpr (kChains == 4) sum += parts[h][2][i] + parts[h][3][i];
        weight[h][i] = sum * scale_log2;
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

  // v_ holds the first batch.
  __device__ void add_values(const float (&weight)[kHeadTiles][4]) {
    uint32_t p[kHeadTiles][2];
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      p[h][0] = transpose_matrix(pack_pair<T>(weight[h][0], weight[h][1]));
      p[h][1] = transpose_matrix(pack_pair<T>(weight[h][2], weight[h][3]));
    }
#pragma unroll
    for (int batch = 0; batch < kSteps; batch += kBatch) {
      if (batch > 0) load_values(batch);
#pragma unroll
      for (int d = 0; d < kBatch; ++d) {
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h) {
          mma_m16n8k16<T>(out_[h][batch + d], v_[d][0], v_[d][1], v_[d][2], v_[d][3], p[h][0],
                          p[h][1]);
        }
      }
    }
  }

  uint32_t stage_ = 0;
  uint32_t k_[kBatch][4];
  uint32_t v_[kBatch][4];
  uint32_t q_[kHeadTiles][kDim / 32][4];
  Softmax softmax_[kHeadTiles][2];
  float shrink_[kHeadTiles][2];
  float out_[kHeadTiles][kDim / 16][4] = {};
};

}  // namespace triptych::decode
