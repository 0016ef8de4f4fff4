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
