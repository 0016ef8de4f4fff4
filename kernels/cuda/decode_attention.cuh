// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Device code of decode attention, shared by its variants. The query heads of a KV head are the
// rows of one tensor-core tile. Each warp streams tiles of 16 tokens through a ring of its own in
// shared memory and keeps a running softmax; warps, then blocks, are merged in a fixed order.
#pragma once

#include <cstdint>

#include "kernels/common/cp_async.cuh"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/kv_rows.cuh"

namespace triptych::decode {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * 32;
inline constexpr int kTile = 16;         // tokens
inline constexpr int kWindowTiles = 16;  // tiles whose rows a warp looks up at once: 2 groups each
// Blocks of an SM that must fit its registers: their starts and ends then hide behind each other.
template <int kDim>
inline constexpr int kMinBlocks = kDim <= 128 ? 3 : 1;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

template <class T>
struct Params {
  AttentionArgs<T> args;
  float scale_log2;  // the softmax works in powers of 2
  int group;         // query heads of a KV head
  int dim;           // head_dim
};

/// Calls launch.operator()<kDim, kRows>(params) for the sizes of `args`; see Layout.
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

/// kDim: head_dim rounded up to 64, 128 or 256, chunks past it are zeros. kRows: 8 or 16, at least
/// the group. kStages: tiles in the ring of a warp.
template <int kDim, int kRows, int kStages>
struct Layout {
  static constexpr int kTileBytes = kTile * kDim * 2;          // of K or V
  static constexpr int kWarpBytes = kStages * 2 * kTileBytes;  // ring; in the end the warp's sums
  static constexpr int kPartialStride = kDim + 8;              // floats; 8: rows in other banks
  static constexpr int kPartialBytes = kRows * kPartialStride * 4;
  static constexpr int kWarpRegion = kWarpBytes > kPartialBytes ? kWarpBytes : kPartialBytes;
  static constexpr int kWarpSumsAt = kWarps * kWarpRegion;               // float2 [kWarps][kRows]
  static constexpr int kBlockSumsAt = kWarpSumsAt + kWarps * kRows * 8;  // float2 [splits][kRows]
  static constexpr int kReceivedAt = kBlockSumsAt + kMaxDecodeSplits * kRows * 8;
  // float4 [splits][ceil(group * dim / 4 / splits)]
  static constexpr int kReceivedBytes = kRows * kDim * 4 + kMaxDecodeSplits * 16;
  static constexpr int kBytes = kReceivedAt;  // of a block that receives nothing
  static constexpr int kClusterBytes = kReceivedAt + kReceivedBytes;
};

/// A softmax numerator in the making: sum is that of exp2(score - max).
struct Softmax {
  float max = -INFINITY;
  float sum = 0.0f;
};

/// Weight of a part with maximum `part_max` in a whole with maximum `max`. Parts without keys have
/// no weight, also when there are no keys at all.
__device__ inline float part_weight(float part_max, float max) {
  return part_max == -INFINITY ? 0.0f : exp2f(part_max - max);
}

/// The tiles of one warp: which they are, and their way into shared memory.
template <class T, int kDim>
class TileStream {
 public:
  __device__ TileStream(const Params<T>& p, int sequence, int kv_head, int length, int slot,
                        int num_slots)
      : rows_(p.args.kv, sequence, kv_head, length), stride_(num_slots), dim_(p.dim) {
    const int window = static_cast<int>(p.args.window);
    tokens_ = {window > 0 && length > window ? length - window : 0, length};
    first_ = tokens_.begin / kTile + slot;
    const int end = (length + kTile - 1) / kTile;
    count_ = end > first_ ? (end - first_ + num_slots - 1) / num_slots : 0;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t offset = int64_t{lane / kChunks} * dim_ + lane % kChunks * kChunk;
    k_ = p.args.kv.k + offset;
    v_ = p.args.kv.v + offset;
  }

  [[nodiscard]] __device__ int count() const { return count_; }
  [[nodiscard]] __device__ const TokenRange& tokens() const { return tokens_; }
  [[nodiscard]] __device__ int first_token(int i) const { return (first_ + i * stride_) * kTile; }

  /// Looks up where the tiles from number i on lie. Called for each multiple of kWindowTiles.
  __device__ void look_up(int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = (first_ + (i + lane / 2) * stride_) * 2 + lane % 2;
    const int token = group * kTokenGroup;
    const bool needed = token < tokens_.end && token + kTokenGroup > tokens_.begin;
    window_ = needed ? rows_.row(static_cast<unsigned>(group)) : 0;
  }

  /// Starts to copy the rows of tile i in [from, to) into shared memory.
  __device__ void copy_keys(int i, uint32_t shared, int from, int to) const {
    copy(k_, i, shared, from, to);
  }
  __device__ void copy_values(int i, uint32_t shared, int from, int to) const {
    copy(v_, i, shared, from, to);
  }

 private:
  static constexpr int kChunks = kDim / kChunk;  // of a row, one lane each
  static constexpr int kRowsACopy = 32 / kChunks;

  __device__ void copy(const T* base, int i, uint32_t shared, int from, int to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const unsigned chunk = lane % kChunks;
    const bool in_dim = static_cast<int>(chunk) * kChunk < dim_;
    const int within = i % kWindowTiles * 2;
    const int row[2] = {__shfl_sync(kAllLanes, window_, within),
                        __shfl_sync(kAllLanes, window_, within + 1)};
    const int token0 = first_token(i);
#pragma unroll
    for (int r = 0; r < kTile; r += kRowsACopy) {
      const int tile_row = r + lane / kChunks;
      const int token = token0 + tile_row;
      const T* source = base + (int64_t{row[r / kTokenGroup]} + r % kTokenGroup) * dim_;
      if (token >= from && token < to) {
        copy_async_16(shared + tile_byte<kDim>(tile_row, chunk), source,
                      in_dim && tokens_.contains(token));
      }
    }
  }

  KvRows rows_;
  const T* k_;
  const T* v_;
  int first_;
  int stride_;
  int count_;
  int dim_;
  int window_ = 0;  // lane l: row of group l % 2 of tile l / 2 of the window
  TokenRange tokens_;
};

/// The rows g and g + 8 of a warp's tile: queries, running softmax, sums of the values.
template <class T, int kDim, int kRows>
class WarpState {
 public:
  /// Numbers 32 c + 8 t to 32 c + 8 t + 7 of rows g and g + 8. A product takes the first 4 of each
  /// lane as its columns 2t, 2t + 1, 2t + 8, 2t + 9, the next product the other 4; keys alike.
  __device__ void load_queries(const T* q, int group, int dim) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row = g() + 8 * half;
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c) {
        const int column = 32 * c + 8 * t();
        const bool there = row < group && column < dim;
        q_[half][c] = there ? __ldcg(reinterpret_cast<const uint4*>(q + row * dim + column))
                            : make_uint4(0, 0, 0, 0);
      }
    }
  }

  /// Scores of the 16 keys of a tile, scaled; those outside of `tokens` are -inf. score[j][2 h + i]
  /// belongs to row g + 8 h and token 8 j + 2 t + i.
  __device__ void score(const unsigned char* keys, float scale_log2, int token0, TokenRange tokens,
                        float (&score)[2][4]) const {
    float parts[2][2][4] = {};  // two sums each: chains of products half as long
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const auto k = *reinterpret_cast<const uint4*>(
            keys + tile_byte<kDim>(8 * j + g(), static_cast<unsigned>(4 * c + t())));
        const uint4 low = q_[0][c];
        const uint4 high = kRows > 8 ? q_[kHalves - 1][c] : make_uint4(0, 0, 0, 0);
        mma_m16n8k16<T>(parts[j][0], low.x, high.x, low.y, high.y, k.x, k.y);
        mma_m16n8k16<T>(parts[j][1], low.z, high.z, low.w, high.w, k.z, k.w);
      }
    }
    const bool whole = token0 >= tokens.begin && token0 + kTile <= tokens.end;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        score[j][i] = (parts[j][0][i] + parts[j][1][i]) * scale_log2;
        if (!whole && !tokens.contains(token0 + 8 * j + 2 * t() + i % 2)) score[j][i] = -INFINITY;
      }
    }
  }

  /// Turns scores into weights relative to the new maximum; the sums so far shrink by `shrink`.
  /// At least one token of the tile is within range.
  __device__ void update(float (&score)[2][4], float (&shrink)[2]) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float max = fmaxf(fmaxf(score[0][2 * h], score[0][2 * h + 1]),
                        fmaxf(score[1][2 * h], score[1][2 * h + 1]));
      max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
      max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
      max = fmaxf(max, softmax_[h].max);
      shrink[h] = exp2f(softmax_[h].max - max);
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          score[j][i] = exp2f(score[j][i] - max);
          sum += score[j][i];
        }
      }
      softmax_[h] = {max, softmax_[h].sum * shrink[h] + sum};
    }
  }

  /// Adds the values of a tile with these weights.
  __device__ void add_values(uint32_t values, const float (&weight)[2][4],
                             const float (&shrink)[2]) {
    const uint32_t a0 = pack_pair<T>(weight[0][0], weight[0][1]);
    const uint32_t a2 = pack_pair<T>(weight[1][0], weight[1][1]);
    const uint32_t a1 = kRows > 8 ? pack_pair<T>(weight[0][2], weight[0][3]) : 0;
    const uint32_t a3 = kRows > 8 ? pack_pair<T>(weight[1][2], weight[1][3]) : 0;
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t b[4];
      load_matrices_transposed(b, values + tile_byte<kDim>(lane % 16, 2 * d + lane / 16));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float(&out)[4] = out_[2 * d + n];
#pragma unroll
        for (int i = 0; i < 2 * kHalves; ++i) out[i] *= shrink[i / 2];
        mma_m16n8k16<T>(out, a0, a1, a2, a3, b[2 * n], b[2 * n + 1]);
      }
    }
  }

  /// Writes the sums of the rows of `group`, [kRows][stride], and their softmax.
  __device__ void store(float* partial, int stride, float2* sums, int group) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float sum = softmax_[h].sum;
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const int row = g() + 8 * h;
      if (row >= group) continue;
      if (t() == 0) sums[row] = make_float2(softmax_[h].max, sum);
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        *reinterpret_cast<float2*>(partial + row * stride + 8 * d + 2 * t()) =
            make_float2(out_[d][2 * h], out_[d][2 * h + 1]);
      }
    }
  }

 private:
  static constexpr int kHalves = kRows / 8;
  static __device__ int g() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  static __device__ int t() { return static_cast<int>(threadIdx.x) % 4; }

  uint4 q_[kHalves][kDim / 32];
  Softmax softmax_[kHalves];
  float out_[kDim / 8][4] = {};
};

/// Streams the tiles of this warp. Before it waits for the kernel before, it reads old tokens only:
/// the newest one may have been written by that kernel.
template <class T, int kDim, int kRows, int kStages>
__device__ void attend(const Params<T>& p, TileStream<T, kDim>& stream, const T* q,
                       unsigned char* ring, WarpState<T, kDim, kRows>& state) {
  using L = Layout<kDim, kRows, kStages>;
  const uint32_t shared = shared_address(ring);
  const int count = stream.count();
  const int newest = stream.tokens().end - 1;
  constexpr int kAll = INT32_MAX;
  if (count > 0) stream.look_up(0);
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    const uint32_t stage = shared + i * 2 * L::kTileBytes;
    if (i < count) stream.copy_keys(i, stage, 0, newest);
    commit_copies();
    if (i < count) stream.copy_values(i, stage + L::kTileBytes, 0, newest);
    commit_copies();
  }
  wait_for_previous_kernels();
  state.load_queries(q, p.group, p.dim);
  // Only the last tile of a warp can hold the newest token; that tile waits for all copies, so
  // that these need no group.
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    const uint32_t stage = shared + i * 2 * L::kTileBytes;
    if (i != count - 1) continue;
    stream.copy_keys(i, stage, newest, kAll);
    stream.copy_values(i, stage + L::kTileBytes, newest, kAll);
  }
  for (int i = 0; i < count; ++i) {
    const int offset = i % kStages * 2 * L::kTileBytes;
    const int next = i + kStages;
    const bool last = i == count - 1;
    if (next < count && next % kWindowTiles == 0) stream.look_up(next);
    if (last) {
      wait_for_all_copies();
    } else {
      wait_for_copies<2 * kStages - 1>();
    }
    __syncwarp();
    float weight[2][4];
    float shrink[2];
    state.score(ring + offset, p.scale_log2, stream.first_token(i), stream.tokens(), weight);
    __syncwarp();
    if (next < count) stream.copy_keys(next, shared + offset, 0, kAll);
    commit_copies();
    state.update(weight, shrink);
    if (!last) wait_for_copies<2 * kStages - 1>();
    __syncwarp();
    state.add_values(shared + offset + L::kTileBytes, weight, shrink);
    __syncwarp();
    if (next < count) stream.copy_values(next, shared + offset + L::kTileBytes, 0, kAll);
    commit_copies();
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

/// Four neighbouring numbers of one row, summed over `parts` in their order; `whole` is their
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
