// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Device code of prefill attention that its variants share, after FlashAttention-2 (Dao 2023): a
// block holds a tile of queries and passes over the keys with a running softmax. The rows of a tile
// are pairs of a token and a query head of one KV head, so that each key is loaded once for the
// whole group and a chunk of few tokens fills a tile as far as it can.
#pragma once

#include <cstdint>

#include "kernels/common/cp_async.cuh"
#include "kernels/common/exp2.cuh"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/kv_rows.cuh"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/shared_limit.h"

namespace triptych::prefill {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

template <class T>
struct Params {
  AttentionArgs<T> args;
  float scale_log2;  // the softmax works in powers of 2
  int group;         // query heads of a KV head
  int dim;           // head_dim
};

template <class T>
Params<T> make_params(const AttentionArgs<T>& args) {
  constexpr float kLog2E = 1.4426950408889634f;
  return {args, args.scale * kLog2E, static_cast<int>(args.num_q_heads / args.kv.num_kv_heads),
          static_cast<int>(args.kv.head_dim)};
}

/// Shared memory of a block: queries [kRows], keys [kKeys], values [kKeys], in pieces of 64
/// numbers. kDim: head_dim rounded up to 64, 128 or 256, chunks past it are zeros.
template <int kDim_, int kRows_, int kKeys_>
struct Tile {
  static constexpr int kDim = kDim_;
  static constexpr int kRows = kRows_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kChunks = kDim / kChunk;  // of a row
  static constexpr int kKeysAt = kRows * kDim * 2;
  static constexpr int kValuesAt = kKeysAt + kKeys * kDim * 2;
  static constexpr int kBytes = kValuesAt + kKeys * kDim * 2;
};

/// The part of the launch that a block works on.
struct Work {
  int sequence = -1;  ///< None: more blocks than tiles were launched.
  int first_row = 0;  ///< Of the tile, counted in the sequence's pairs of token and head.
};

/// Tiles of `tile_rows` rows are numbered through all sequences; each warp finds tile `index`.
__device__ inline Work find_work(const int32_t* row_starts, int num_sequences, int group,
                                 int tile_rows, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int base = 0; base < num_sequences; base += 32) {
    const int sequence = base + lane;
    int tiles = 0;
    if (sequence < num_sequences) {
      const int rows = (row_starts[sequence + 1] - row_starts[sequence]) * group;
      tiles = (rows + tile_rows - 1) / tile_rows;
    }
    int end = tiles;  // of this sequence's tiles
    for (int offset = 1; offset < 32; offset *= 2) {
      const int before = __shfl_up_sync(kAllLanes, end, offset);
      if (lane >= offset) end += before;
    }
    const unsigned reached = __ballot_sync(kAllLanes, end > index);
    if (reached != 0) {
      const int found = __ffs(static_cast<int>(reached)) - 1;
      const int begin = __shfl_sync(kAllLanes, end - tiles, found);
      return {base + found, (index - begin) * tile_rows};
    }
    index -= __shfl_sync(kAllLanes, end, 31);
  }
  return {};
}

/// The work of this block. The last tiles of a sequence see the most keys: they come first, so that
/// short work fills the end. All KV heads of a tile are neighbours.
template <class T>
__device__ Work find_work(const Params<T>& p, int tile_rows) {
  return find_work(p.args.row_starts, static_cast<int>(p.args.num_sequences), p.group, tile_rows,
                   static_cast<int>(gridDim.y - 1 - blockIdx.y));
}

/// What the rows of a tile are and see.
template <class T>
class Queries {
 public:
  __device__ Queries(const Params<T>& p, Work work, int tile_rows)
      : p_(p),
        first_row_(work.first_row),
        row_start_(p.args.row_starts[work.sequence]),
        window_(static_cast<int>(p.args.window)) {
    length_ = p.args.kv_lengths[work.sequence];
    const int new_tokens = p.args.row_starts[work.sequence + 1] - row_start_;
    past_ = length_ - new_tokens;
    rows_ = min(new_tokens * p.group - first_row_, tile_rows);
    tokens_ = {begin(position(0)), position(rows_ - 1) + 1};
  }

  [[nodiscard]] __device__ int length() const { return length_; }
  /// Rows of the tile that exist.
  [[nodiscard]] __device__ int rows() const { return rows_; }
  /// The keys that any row sees.
  [[nodiscard]] __device__ TokenRange tokens() const { return tokens_; }
  /// Of the token of a row; rows that do not exist are like the last.
  [[nodiscard]] __device__ int position(int row) const {
    return past_ + (first_row_ + min(row, rows_ - 1)) / p_.group;
  }
  /// The first key that a token at `position` sees.
  [[nodiscard]] __device__ int begin(int position) const {
    return window_ > 0 ? max(position - window_ + 1, 0) : 0;
  }

  /// Starts to copy the queries of the tile, by the whole block.
  template <class L>
  __device__ void copy_queries(uint32_t shared) const {
    for (int i = static_cast<int>(threadIdx.x); i < L::kRows * L::kChunks; i += kThreads) {
      const int row = i / L::kChunks;
      const int chunk = i % L::kChunks;
      const bool there = row < rows_ && chunk * kChunk < p_.dim;
      const T* source =
          there ? p_.args.q + token(row) * p_.args.q_stride + column(row, chunk) : p_.args.q;
      copy_async_16(shared + tile_byte<L::kRows>(row, chunk), source, there);
    }
  }
  /// Writes `count` rows from `first` on, which lie in shared memory as the queries did; one warp.
  template <class L>
  __device__ void write_rows(const unsigned char* shared, int first, int count) const {
    for (int i = static_cast<int>(threadIdx.x) % 32; i < count * L::kChunks; i += 32) {
      const int row = first + i / L::kChunks;
      const int chunk = i % L::kChunks;
      if (row >= rows_ || chunk * kChunk >= p_.dim) continue;
      T* out = p_.args.out + token(row) * p_.args.num_q_heads * p_.dim + column(row, chunk);
      *reinterpret_cast<uint4*>(out) =
          *reinterpret_cast<const uint4*>(shared + tile_byte<L::kRows>(row, chunk));
    }
  }

 private:
  [[nodiscard]] __device__ int64_t token(int row) const {
    return row_start_ + (first_row_ + row) / p_.group;
  }
  [[nodiscard]] __device__ int64_t column(int row, int chunk) const {
    const int64_t head = int64_t{blockIdx.x} * p_.group + (first_row_ + row) % p_.group;
    return head * p_.dim + chunk * kChunk;
  }

  const Params<T>& p_;
  int first_row_;
  int row_start_;
  int window_;
  int length_ = 0;
  int past_ = 0;
  int rows_ = 0;
  TokenRange tokens_;
};

/// Copies of tiles of keys and values into shared memory, by the whole block.
template <class T, class L>
class KeyTiles {
 public:
  __device__ KeyTiles(const Params<T>& p, int sequence, int length, TokenRange tokens)
      : rows_(p.args.kv, sequence, static_cast<int>(blockIdx.x), length),
        tokens_(tokens),
        dim_(p.dim) {
    const int chunk = static_cast<int>(threadIdx.x) % L::kChunks;
    k_ = p.args.kv.k + chunk * kChunk;
    v_ = p.args.kv.v + chunk * kChunk;
    in_dim_ = chunk * kChunk < dim_;
  }

  [[nodiscard]] __device__ int first() const { return tokens_.begin / L::kKeys; }
  [[nodiscard]] __device__ int last() const { return (tokens_.end - 1) / L::kKeys; }
  /// Lane l gets the row of group l of the tile.
  [[nodiscard]] __device__ int look_up(int tile) const {
    const int group = static_cast<int>(threadIdx.x) % 32;
    const int token = tile * L::kKeys + group * kTokenGroup;
    const bool needed = group < L::kKeys / kTokenGroup && token < tokens_.end &&
                        token + kTokenGroup > tokens_.begin;
    return needed ? rows_.row(static_cast<unsigned>(token / kTokenGroup)) : 0;
  }
  __device__ void copy_keys(int tile, int rows, uint32_t shared) const {
    copy(k_, tile, rows, shared);
  }
  __device__ void copy_values(int tile, int rows, uint32_t shared) const {
    copy(v_, tile, rows, shared);
  }

 private:
  __device__ void copy(const T* base, int tile, int rows, uint32_t shared) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int token0 = tile * L::kKeys;
    const bool whole = token0 >= tokens_.begin && token0 + L::kKeys <= tokens_.end;
    constexpr int kStep = kThreads / L::kChunks;  // keys that the block copies at once
    const auto chunk = static_cast<unsigned>(thread % L::kChunks);
    const uint32_t first = shared + tile_byte<L::kKeys>(thread / L::kChunks, chunk);
#pragma unroll
    for (int i = 0; i < L::kKeys; i += kStep) {
      const int key = i + thread / L::kChunks;
      const int row = __shfl_sync(kAllLanes, rows, key / kTokenGroup) + key % kTokenGroup;
      // Where a step is not a multiple of 8 keys, the chunks change places by another number.
      const uint32_t place =
          kStep % 8 == 0 ? first + i * 128 : shared + tile_byte<L::kKeys>(key, chunk);
      copy_async_16(place, base + int64_t{row} * dim_,
                    in_dim_ && (whole || tokens_.contains(token0 + key)));
    }
  }

  KvRows rows_;
  TokenRange tokens_;
  int dim_;
  bool in_dim_;
  const T* k_;
  const T* v_;
};

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
