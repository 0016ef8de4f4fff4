// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What a block of prefill attention works on: its queries, and the tiles of keys and values that
// they see. The rows of a tile of queries are pairs of a token and a query head of one KV head, so
// that each key is loaded once for the whole group and a chunk of few tokens fills a tile as far as
// it can.
#pragma once

#include <cstdint>

#include "kernels/common/cp_async.cuh"
#include "kernels/cuda/kv_rows.cuh"
#include "kernels/cuda/prefill_attention.h"

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

}  // namespace triptych::prefill
