// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Device code of decode attention that its variants share. Each warp streams tiles of 16 tokens
// through a ring of its own in shared memory and keeps a running softmax; warps, then blocks, are
// merged in a fixed order. Tokens are the rows of the tensor-core products and query heads of one
// KV head their columns, so that a group of up to 8 heads costs one product.
#pragma once

#include <cstdint>

#include "kernels/common/cp_async.cuh"
#include "kernels/common/exp2.cuh"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mma.cuh"
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

/// Streams the tiles of this warp. Before it waits for the kernel before, it reads old tokens only:
/// the newest one may have been written by that kernel. Ring brings tiles into its stages:
///   start(i)   what is old of tile i, one of the first kStages
///   finish(i)  the rest of such a tile, the last of the warp
///   refill(i)  tile i as a whole, over tile i - kStages
///   wait(i)    until tile i is there; gives its address
template <class T, int kDim, int kHeads, int kStages, class Ring>
__device__ void attend(const Params<T>& p, Tiles<T, kDim>& tiles, Ring& ring, const T* q,
                       WarpState<T, kDim, kHeads>& state) {
  const int count = tiles.count();
  if (count > 0) tiles.look_up(0);
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    if (i < count) ring.start(i);
  }
  wait_for_previous_kernels();
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    if (i == count - 1) ring.finish(i);
  }
  state.load_queries(q, p.group, p.dim);
  for (int i = 0; i < count; ++i) {
    const int next = i + kStages;
    if (next < count && next % kWindowTiles == 0) tiles.look_up(next);
    const uint32_t stage = ring.wait(i);
    state.attend(stage, p.scale_log2, tiles.first_token(i), tiles.tokens());
    __syncwarp();
    if (next < count) ring.refill(next);
  }
}

/// Ways to read parts: from shared memory, or what other blocks of this launch have written.
struct PlainLoad {
  template <class V>
  __device__ V operator()(const V* pointer) const {
    return *pointer;
  }
};
struct PastL1Load {
  template <class V>
  __device__ V operator()(const V* pointer) const {
    return __ldcg(pointer);
  }
};

/// Four neighbouring numbers of one head, summed over `parts` in their order; `whole` is their
/// softmax. `values` may be null: then only that.
template <int kMaxParts, class Load>
__device__ float4 merge_parts(int parts, const float2* sums, int sums_stride, const float4* values,
                              int values_stride, Load load, Softmax& whole) {
  whole = {};
  for (int i = 0; i < parts; ++i) whole.max = fmaxf(whole.max, load(sums + i * sums_stride).x);
  float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int i = 0; i < kMaxParts; ++i) {
    if (i >= parts) break;
    const float2 sum = load(sums + i * sums_stride);
    const float4 value =
        values != nullptr ? load(values + i * values_stride) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float weight = part_weight(sum.x, whole.max);
    whole.sum += weight * sum.y;
    result.x += weight * value.x;
    result.y += weight * value.y;
    result.z += weight * value.z;
    result.w += weight * value.w;
  }
  return result;
}

/// The quotient that is attention, four numbers of it; 0 where there were no keys.
template <class T>
__device__ void store_result(T* out, float4 value, float sum) {
  const float scale = sum > 0.0f ? 1.0f / sum : 0.0f;
  const uint2 packed = {pack_pair<T>(value.x * scale, value.y * scale),
                        pack_pair<T>(value.z * scale, value.w * scale)};
  *reinterpret_cast<uint2*>(out) = packed;
}

}  // namespace triptych::decode
