// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How w comes in: which pieces a warp of the sm_90 streaming kernel reads, and its ring of them in
// shared memory.
#pragma once

#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/cuda/stream_epilogue.cuh"
#include "kernels/cuda/stream_shape.h"

namespace triptych::stream {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr int kWarps = kStreamWarps + kFinishWarps;
inline constexpr int kThreads = kWarps * kWarp;
inline constexpr int kFinishThreads = kFinishWarps * kWarp;

template <class T>
struct StreamLaunch {
  CUtensorMap map;
  StreamOp<T> op;
  StreamEpilogue epilogue;
  StreamShape shape;
};

// A block's tiles are first, first + step, ...: the chip sweeps w in order.
__device__ inline int block_tile(int i) {
  return static_cast<int>(blockIdx.x) + i * static_cast<int>(gridDim.x);
}
__device__ inline int block_tiles(const StreamTiles& tiles) {
  const int step = static_cast<int>(gridDim.x);
  return (tiles.count - static_cast<int>(blockIdx.x) + step - 1) / step;
}

// A tile is cut along k into units. The warps take them in turn, and go on in the next tile where
// they stopped, so that all get the same share. A slice is what a warp takes of a tile, the units
// slice, slice + kStreamWarps, ...: the sums depend on k alone, not on which warp made them.
__device__ inline int slice_of_warp(int warp, int units_before) {
  return (warp - units_before) & (kStreamWarps - 1);
}

// The pieces of w that one warp reads, in order.
template <class T>
class Cursor {
 public:
  __device__ Cursor(const StreamLaunch<T>& launch, int warp)
      : units_(launch.shape.units),
        together_(launch.shape.together),
        tiles_(block_tiles(launch.op.tiles)),
        warp_(warp) {
    settle();
  }
  __device__ bool done() const { return first_ >= tiles_; }
  __device__ int tile() const { return first_ + in_group_; }
  __device__ int unit() const { return unit_; }
  __device__ void next() {
    if (++in_group_ < min(together_, tiles_ - first_)) return;
    in_group_ = 0;
    unit_ += kStreamWarps;
    if (unit_ < units_) return;
    next_group();
    settle();
  }

 private:
  __device__ void next_group() {
    first_ += together_;
    units_before_ += units_;
  }
  // Goes on to a unit of this warp's.
  __device__ void settle() {
    for (; !done(); next_group()) {
      unit_ = slice_of_warp(warp_, units_before_);
      if (unit_ < units_) return;
    }
  }

  int units_;
  int together_;
  int tiles_;
  int warp_;
  int first_ = 0;     // tile of the group, counted in the block
  int in_group_ = 0;  // tile within it
  int unit_ = 0;
  int units_before_ = 0;
};

// The ring of one streaming warp; lane 0 asks for the pieces.
template <class T>
class Ring {
 public:
  __device__ Ring(const StreamLaunch<T>& launch, int warp, int lane, uint32_t shared)
      : base_(shared + warp * launch.shape.stages * kStreamUnitBytes),
        barriers_(shared + launch.shape.ring_barriers + warp * launch.shape.stages * 8),
        stages_(launch.shape.stages),
        lane_(lane),
        launch_(launch),
        policy_(evict_first_policy()),
        cursor_(launch, warp) {
    if (lane == 0) prefetch_map(&launch.map);
    if (lane < stages_) {
      init_barrier(barriers_ + lane * 8, 1);
      publish_barriers();
    }
    __syncwarp();
    for (int i = 0; i < stages_; ++i) refill(i);
  }

  __device__ uint32_t wait() const {
    wait_for_barrier(barriers_ + stage_ * 8, parity_);
    return base_ + stage_ * kStreamUnitBytes;
  }
  // All lanes have read the piece: the next one may take its place.
  __device__ void release() {
    __syncwarp();
    refill(stage_);
    if (++stage_ == stages_) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  __device__ void refill(int stage) {
    if (cursor_.done()) return;
    if (lane_ == 0) {
      const StreamTiles& tiles = launch_.op.tiles;
      const uint32_t barrier = barriers_ + stage * 8;
      const uint32_t to = base_ + stage * kStreamUnitBytes;
      const int row = stream_tile_row(tiles, block_tile(cursor_.tile()));
      const int chunk = cursor_.unit() * (kStreamUnitColumns / kStreamSwizzleColumns);
      arrive_and_expect(barrier, kStreamUnitBytes);
      copy_box(to, &launch_.map, 0, row, 0, chunk, barrier, policy_);
    }
    cursor_.next();
  }

  uint32_t base_;
  uint32_t barriers_;
  int stages_;
  int lane_;
  const StreamLaunch<T>& launch_;
  uint64_t policy_;
  Cursor<T> cursor_;
  int stage_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace triptych::stream
