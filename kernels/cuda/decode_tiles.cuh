// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Tiles of cached tokens in decode attention: which a warp has, where they lie, and how they come
// into its ring in shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/kv_rows.cuh"

namespace triptych::decode {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * 32;
inline constexpr int kTile = kDecodeTile;
inline constexpr int kWindowTiles = 16;  // tiles whose rows a warp looks up at once: 2 groups each
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

template <class T>
struct Params {
  AttentionArgs<T> args;
  float scale_log2;  // the softmax works in powers of 2
  int group;         // query heads of a KV head
  int dim;           // head_dim
};

/// Calls launch.operator()<kDim, kHeads>(params) for the sizes of `args`; see Layout.
template <class T, class Launch>
cudaError_t with_shape(const AttentionArgs<T>& args, Launch launch) {
  constexpr float kLog2E = 1.4426950408889634f;
  const Params<T> p = {args, args.scale * kLog2E,
                       static_cast<int>(args.num_q_heads / args.kv.num_kv_heads),
                       static_cast<int>(args.kv.head_dim)};
  const bool few = p.group <= 8;
  if (p.dim <= 64) {
    return few ? launch.template operator()<64, 8>(p) : launch.template operator()<64, 16>(p);
  }
  if (p.dim <= 128) {
    return few ? launch.template operator()<128, 8>(p) : launch.template operator()<128, 16>(p);
  }
  return few ? launch.template operator()<256, 8>(p) : launch.template operator()<256, 16>(p);
}

/// Shared memory of a block. kDim: head_dim rounded up to 64, 128 or 256, chunks past it are zeros.
/// kHeads: 8 or 16, at least the group. kStages: tiles in the ring of a warp.
template <int kDim, int kHeads, int kStages>
struct Layout {
  static constexpr int kTileBytes = kTile * kDim * 2;  // of keys or values
  static constexpr int kStageBytes = 2 * kTileBytes;   // keys, then values
  // In the end the ring holds the sums of its warp, [kHeads][kPartialStride]. The stride spreads
  // the heads of a quad over the banks.
  static constexpr int kPartialStride = kDim + 4;
  static constexpr int kPartialBytes = (kHeads * kPartialStride * 4 + 1023) / 1024 * 1024;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kWarpBytes = kRingBytes > kPartialBytes ? kRingBytes : kPartialBytes;
  static constexpr int kWarpSumsAt = kWarps * kWarpBytes;                // float2 [kWarps][kHeads]
  static constexpr int kBarriersAt = kWarpSumsAt + kWarps * kHeads * 8;  // [kWarps][kStages]
  static constexpr int kBytes = kBarriersAt + (kWarps * kStages * 8 + 15) / 16 * 16;
};

/// The tiles of one warp: which they are and where they lie.
template <class T, int kDim>
class Tiles {
 public:
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

  /// Starts copies of the tokens in [from, to) of tile i; those that may not be read become zeros.
  __device__ void copy(int i, uint32_t stage, int from, int to) const {
    const bool in_dim = lane_chunk() * kChunk < dim_;
#pragma unroll 1  // rare: the ends of a sequence
    for (int r = 0; r < kTile; r += kRowsACopy) {
      const int64_t offset = lane_offset(i, r / kTokenGroup) + r % kTokenGroup * dim_;
      const int token = first_token(i) + r + lane_row();
      if (token < from || token >= to) continue;
      const uint32_t shared = stage + tile_byte<kTile>(r + lane_row(), lane_chunk());
      const bool valid = in_dim && tokens_.contains(token);
      copy_async_16(shared, k_ + offset, valid);
      copy_async_16(shared + kTileBytes, v_ + offset, valid);
    }
  }
  /// The same for all tokens of a plain tile.
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
