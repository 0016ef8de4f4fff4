// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Device code of decode attention that its variants share. Each warp streams tiles of 16 tokens
// through a ring of its own and keeps a running softmax; warps, then blocks, are merged in a fixed
// order.
#pragma once

#include <cstdint>

#include "kernels/common/grid_dependency.cuh"
#include "kernels/cuda/decode_tiles.cuh"
#include "kernels/cuda/decode_warp.cuh"

namespace triptych::decode {

/// The queries of one KV head on their way into shared memory: rows of the block's threads
/// together.
template <class T, int kDim, int kHeads>
class Queries {
 public:
  __device__ void load(const Params<T>& p, const T* q) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int row = part(i) / kChunks;
      const int column = part(i) % kChunks * kChunk;
      const bool there = row < p.group && column < p.dim;
      parts_[i] = there ? __ldcg(reinterpret_cast<const uint4*>(q + row * p.dim + column))
                        : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ void store(uint32_t rows) const {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int row = part(i) / kChunks;
      if (row < kHeads) store_16(rows + tile_byte<kHeads>(row, part(i) % kChunks), parts_[i]);
    }
  }

 private:
  static constexpr int kChunks = kDim / kChunk;
  static constexpr int kParts = (kHeads * kChunks + kThreads - 1) / kThreads;
  static __device__ int part(int i) { return static_cast<int>(threadIdx.x) + i * kThreads; }

  uint4 parts_[kParts];
};

/// Streams the tiles of this warp; all threads of the block call. Before it waits for the kernel
/// before, it reads old tokens only: the newest one may have been written by that kernel. So what
/// can be on chip by then is (kHolds: with the first tile in registers), and what is left to wait
/// for afterwards is short: queries and the newest token. Ring brings tiles into its stages:
///   start()          what is old of the first kStages tiles
///   refill(i, old)   tile i over tile i - kStages, where `old` without the newest token
///   wait(i)          until tile i is there; gives its address, that of stage(i)
/// `q` is the first query of the KV head, `rows` where they go in shared memory. This warp calls
/// ring_is_free() once, when it reads its ring no more.
template <class T, int kDim, int kHeads, int kStages, bool kHolds, class Ring, class RingIsFree>
__device__ void attend(const Params<T>& p, Tiles<T, kDim>& tiles, Ring& ring, const T* q,
                       uint32_t rows, WarpState<T, kDim, kHeads, kHolds>& state,
                       RingIsFree ring_is_free) {
  const int count = tiles.count();
  const int last = count - 1;
  const auto refill = [&](int next, bool old) {
    if (next >= count) return;
    __syncwarp();
    if (next % kWindowTiles == 0) tiles.look_up(next);
    ring.refill(next, old);
  };
  if (count > 0) tiles.look_up(0);
  ring.start();
  const bool first_is_taken = kHolds && count > 0 && tiles.is_plain(0);
  if (first_is_taken) {
    state.take(ring.wait(0));
    refill(kStages, true);
  }
  wait_for_previous_kernels();
  const int brought = first_is_taken ? kStages + 1 : kStages;
  const bool lacks_newest = count > 0 && last < brought && tiles.has_newest(last);
  uint4 newest[Tiles<T, kDim>::kNewestParts];
  Queries<T, kDim, kHeads> queries;
  queries.load(p, q);
  if (lacks_newest) tiles.load_newest(last, newest);
  queries.store(rows);
  if (lacks_newest) tiles.store_newest(last, ring.stage(last), newest);
  __syncthreads();
  state.load_queries(rows);
  for (int i = 0; i < count; ++i) {
    if (i > 0 || !first_is_taken) {
      state.take(ring.wait(i));
      if (kHolds) refill(i + kStages, false);
    }
    if (kHolds && i == last) ring_is_free();
    state.attend(p.scale_log2, tiles.first_token(i), tiles.tokens());
    if (!kHolds) refill(i + kStages, false);
  }
  if (!kHolds || count == 0) ring_is_free();
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
