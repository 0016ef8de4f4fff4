// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What decode attention is called with, and the sizes for which it is compiled.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/decode_attention.h"

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
  static constexpr int kQueriesAt = kWarps * kWarpBytes;              // T [kHeads][kDim], tile_byte
  static constexpr int kWarpSumsAt = kQueriesAt + kHeads * kDim * 2;  // float2 [kWarps][kHeads]
  static constexpr int kBytes = kWarpSumsAt + kWarps * kHeads * 8;
};

}  // namespace triptych::decode
