// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Tiles of cached tokens in decode attention: which a warp has, where they lie, and how they come
// into its ring in shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/decode_shape.cuh"
#include "kernels/cuda/kv_rows.cuh"

namespace triptych::decode {

/// The tiles of one warp: which they are and where they lie.
template <class T, int kDim>
class Tiles {
 public:
  static constexpr int kNewestParts = (2 * kDim / kChunk + 31) / 32;  // of 16 bytes, in each lane

  __device__ Tiles(const Params<T>& p, int sequence, int kv_head, int length, int slot,
                   int num_slots)
      : rows_(p.args.kv, sequence, kv_head, length),
        k_(p.args.kv.k),
        v_(p.args.kv.v),
        stride_(num_slots),
        dim_(p.dim) {
    const int window = static_cast<int>(p.args.window);
    tokens_ = {window > 0 && length > window ? length - window : 0, length};
    first_ = tokens_.begin / kTile + slot;
    const int end = (length + kTile - 1) / kTile;
    count_ = end > first_ ? (end - first_ + num_slots - 1) / num_slots : 0;
  }

  [[nodiscard]] __device__ int count() const { return count_; }
  [[nodiscard]] __device__ int newest() const { return tokens_.end - 1; }
  [[nodiscard]] __device__ const TokenRange& tokens() const { return tokens_; }
  [[nodiscard]] __device__ int first_token(int i) const { return (first_ + i * stride_) * kTile; }
  /// Whether all tokens of tile i are seen and older than the newest.
  [[nodiscard]] __device__ bool is_plain(int i) const {
    return first_token(i) >= tokens_.begin && first_token(i) + kTile <= newest();
  }

  /// Looks up where the tiles from number i on lie. Called for each multiple of kWindowTiles.
  __device__ void look_up(int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = (first_ + (i + lane / 2) * stride_) * 2 + lane % 2;
    const int token = group * kTokenGroup;
    const bool needed = token < tokens_.end && token + kTokenGroup > tokens_.begin;
    window_ = needed ? rows_.row(static_cast<unsigned>(group)) : 0;
  }
  /// The row where half `half` of tile i begins; all lanes of the warp call together.
  [[nodiscard]] __device__ int row(int i, int half) const {
    return __shfl_sync(kAllLanes, window_, i % kWindowTiles * 2 + half);
  }

  /// Whether tile i has the newest token.
  [[nodiscard]] __device__ bool has_newest(int i) const {
    return newest() >= first_token(i) && newest() < first_token(i) + kTile;
  }

  /// Starts copies of tile i except for token `except`; tokens that may not be read become zeros.
  __device__ void copy(int i, uint32_t stage, int except) const {
    const bool in_dim = lane_chunk() * kChunk < dim_;
#pragma unroll 1  // rare: the ends of a sequence
    for (int r = 0; r < kTile; r += kRowsACopy) {
      const int64_t offset = lane_offset(i, r / kTokenGroup) + r % kTokenGroup * dim_;
      const int token = first_token(i) + r + lane_row();
      if (token == except) continue;
      const uint32_t shared = stage + tile_byte<kTile>(r + lane_row(), lane_chunk());
      const bool valid = in_dim && tokens_.contains(token);
      copy_async_16(shared, k_ + offset, valid);
      copy_async_16(shared + kTileBytes, v_ + offset, valid);
    }
  }
  /// The newest token, which tile i has, its key and its value in parts. Past the L1 cache: the
  /// kernel before may have written it.
  __device__ void load_newest(int i, uint4 (&parts)[kNewestParts]) const {
    const int within = newest() - first_token(i);
    const int64_t offset = int64_t{row(i, within / kTokenGroup) + within % kTokenGroup} * dim_;
#pragma unroll
    for (int n = 0; n < kNewestParts; ++n) {
      const int part = static_cast<int>(threadIdx.x) % 32 + 32 * n;
      const int column = part % kChunks * kChunk;
      const T* source = (part < kChunks ? k_ : v_) + offset + column;
      parts[n] = part < 2 * kChunks && column < dim_
                     ? __ldcg(reinterpret_cast<const uint4*>(source))
                     : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ void store_newest(int i, uint32_t stage, const uint4 (&parts)[kNewestParts]) const {
    const int within = newest() - first_token(i);
#pragma unroll
    for (int n = 0; n < kNewestParts; ++n) {
      const int part = static_cast<int>(threadIdx.x) % 32 + 32 * n;
      const uint32_t tile = stage + part / kChunks * kTileBytes;
      if (part < 2 * kChunks) store_16(tile + tile_byte<kTile>(within, part % kChunks), parts[n]);
    }
  }

  /// As copy, of a plain tile.
  __device__ void copy_plain(int i, uint32_t stage) const {
    const int64_t offset[2] = {lane_offset(i, 0), lane_offset(i, 1)};
    const bool in_dim = lane_chunk() * kChunk < dim_;
#pragma unroll
    for (int r = 0; r < kTile; r += kRowsACopy) {
      const uint32_t shared = stage + tile_byte<kTile>(r + lane_row(), lane_chunk());
      const int64_t at = offset[r / kTokenGroup] + r % kTokenGroup * dim_;
      copy_async_16(shared, k_ + at, in_dim);
      copy_async_16(shared + kTileBytes, v_ + at, in_dim);
    }
  }

 private:
  static constexpr int kTileBytes = kTile * kDim * 2;
  static constexpr int kChunks = kDim / kChunk;  // of a row, one lane each
  static constexpr int kRowsACopy = 32 / kChunks;
  static __device__ int lane_row() { return static_cast<int>(threadIdx.x) % 32 / kChunks; }
  static __device__ int lane_chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  [[nodiscard]] __device__ int64_t lane_offset(int i, int half) const {
    return int64_t{row(i, half) + lane_row()} * dim_ + lane_chunk() * kChunk;
  }

  KvRows rows_;
  const T* k_;
  const T* v_;
  int first_;
  int stride_;
  int count_;
  int dim_;
  int window_ = 0;  // lane l: row of half l % 2 of tile l / 2 of the window
  TokenRange tokens_;
};

}  // namespace triptych::decode
