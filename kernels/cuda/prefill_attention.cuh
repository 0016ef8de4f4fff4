// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Device code of prefill attention that its variants share, after FlashAttention-2 (Dao 2023): a
// block holds a tile of queries and passes over the keys with a running softmax.
#pragma once

#include <cstdint>

#include "kernels/common/exp2.cuh"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/prefill_tiles.cuh"
#include "kernels/cuda/shared_limit.h"

namespace triptych::prefill {

/// Scores, running softmax and sums of the values of the rows of one warp: kRowTiles tiles of 16
/// rows, the first at kWarpStride * warp, kTileStride apart. Layout of each:
/// kernels/common/mma.cuh.
template <class L, int kRowTiles, int kWarpStride, int kTileStride>
struct RowState {
  static constexpr int kKeyTiles = L::kKeys / 8;
  static constexpr int kDimTiles = L::kDim / 8;

  float scores[kRowTiles][kKeyTiles][4];
  float out[kRowTiles][kDimTiles][4] = {};
  float max[kRowTiles][2];
  float sum[kRowTiles][2] = {};

  __device__ RowState() {
    for (float(&pair)[2] : max) pair[0] = pair[1] = -INFINITY;
  }
  static __device__ int warp_row(int tile) {
    return static_cast<int>(threadIdx.x) / 32 * kWarpStride + tile * kTileStride;
  }
  static __device__ int row(int tile, int h) {
    return warp_row(tile) + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * h;
  }

  /// Keys that a row does not see.
  template <class T>
  __device__ void mask(const Queries<T>& queries, int token0) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int position = queries.position(row(m, h));
        const int begin = queries.begin(position);
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int token = token0 + 8 * n + 2 * t + i;
            if (token > position || token < begin) scores[m][n][2 * h + i] = -INFINITY;
          }
        }
      }
    }
  }

  /// Turns scores into weights relative to the new maximum of their row.
  __device__ void update(float scale_log2) {
    float shrink[kRowTiles][2];
    bool grew = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float new_max = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
          new_max = fmaxf(new_max, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
        }
        new_max = fmaxf(new_max, __shfl_xor_sync(kAllLanes, new_max, 1));
        new_max = fmaxf(new_max, __shfl_xor_sync(kAllLanes, new_max, 2));
        new_max = fmaxf(max[m][h], new_max * scale_log2);
        const float base = new_max == -INFINITY ? 0.0f : new_max;  // no key seen yet
        shrink[m][h] = exp2_flushed(max[m][h] - base);
        grew |= new_max > max[m][h];
        max[m][h] = new_max;
        float tile_sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i) {
            scores[m][n][i] = exp2_flushed(fmaf(scores[m][n][i], scale_log2, -base));
            tile_sum += scores[m][n][i];
          }
        }
        sum[m][h] = sum[m][h] * shrink[m][h] + tile_sum;
      }
    }
    // Maxima seldom grow; where none does, all factors are 1.
    if (!__any_sync(kAllLanes, grew)) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[m][d][i] *= shrink[m][i / 2];
      }
    }
  }

  /// The weights of keys 16 k to 16 k + 15 as the first operand of a product.
  template <class T>
  __device__ void pack_weights(int m, int k, uint32_t (&packed)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&score)[4] = scores[m][2 * k + i / 2];
      packed[i] = pack_pair<T>(score[i % 2 * 2], score[i % 2 * 2 + 1]);
    }
  }

  /// Writes the quotients where the queries of the rows lie in shared memory.
  template <class T>
  __device__ void store(unsigned char* shared) const {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float whole = sum[m][h];
        whole += __shfl_xor_sync(kAllLanes, whole, 1);
        whole += __shfl_xor_sync(kAllLanes, whole, 2);
        const float scale = whole > 0.0f ? 1.0f / whole : 0.0f;
#pragma unroll
        for (int d = 0; d < kDimTiles; ++d) {
          *reinterpret_cast<uint32_t*>(shared + tile_byte<L::kRows>(row(m, h), d) + 4 * t) =
              pack_pair<T>(out[m][d][2 * h] * scale, out[m][d][2 * h + 1] * scale);
        }
      }
    }
  }
};

template <class L, class T, class Kernel>
cudaError_t launch(Kernel kernel, SharedLimit& limit, const Params<T>& p, cudaStream_t stream) {
  const cudaError_t status = limit.raise(reinterpret_cast<const void*>(kernel), L::kBytes);
  if (status != cudaSuccess) return status;
  // Each sequence ends in at most one tile that is not full.
  const int64_t tiles = p.args.rows * p.group / L::kRows + p.args.num_sequences;
  const dim3 grid(static_cast<unsigned>(p.args.kv.num_kv_heads), static_cast<unsigned>(tiles));
  return launch_kernel(kernel, grid, dim3(kThreads), L::kBytes, stream, p.args.order, 1, p);
}

}  // namespace triptych::prefill
