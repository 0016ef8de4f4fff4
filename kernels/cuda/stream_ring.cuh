// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How w comes in: which pieces a warp of the sm_90 streaming kernels reads, and its ring of them in
// shared memory.
#pragma once

#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/cuda/stream_epilogue.cuh"
#include "kernels/cuda/stream_shape.h"

namespace triptych::stream {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr int kWarps = kStreamWarps + kFinishWarps;
inline constexpr int kThreads = kWarps * kWarp;
inline constexpr int kBoxBytes = kStreamUnitBytes / 2;  // 8 rows

// Between the blocks of a cluster, or within the block where there is no cluster.
template <bool kCluster>
__device__ void store_shared(uint32_t address, float value) {
  if constexpr (kCluster) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
  } else {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
  }
}
template <bool kCluster>
__device__ void arrive(uint32_t barrier) {
  if constexpr (kCluster) {
    arrive_at_remote_barrier(barrier);
  } else {
    arrive_at_barrier(barrier);
  }
}
template <bool kCluster>
__device__ void wait_for_ranks(uint32_t barrier, uint32_t parity) {
  if constexpr (kCluster) {
    wait_for_cluster_barrier(barrier, parity);
  } else {
    wait_for_barrier(barrier, parity);
  }
}

// The pieces of w that one warp reads, in order. A block's tiles are cut along k into parts and
// these into units; the warps take the units of a part in turn, and go on in the next part where
// they stopped, so that all get the same share. `slice` numbers a warp's share of a part by its
// first unit: the sums depend on k alone, not on which warp made them.
class Cursor {
 public:
  __device__ Cursor(const StreamShape& shape, int first_part, int warp, int tiles)
      : shape_(shape), first_part_(first_part), warp_(warp), tiles_(tiles) {
    enter();
  }
  __device__ bool done() const { return tile >= tiles_; }
  __device__ int slice() const { return (warp_ - turn_) & (kStreamWarps - 1); }
  __device__ bool has_unit() const { return unit < end_; }
  __device__ void next_unit() { unit += kStreamWarps; }
  __device__ void next_part() {
    turn_ += end_ - begin_;
    if (++part == shape_.parts / shape_.ranks) {
      part = 0;
      ++tile;
    }
    enter();
  }

  int tile = 0;  // of the block's, counted
  int part = 0;  // of the block's
  int unit = 0;

 private:
  __device__ void enter() {
    begin_ = min((first_part_ + part) * shape_.units_per_part, shape_.units);
    end_ = min(begin_ + shape_.units_per_part, shape_.units);
    unit = begin_ + slice();
  }

  const StreamShape& shape_;
  int first_part_;
  int warp_;
  int tiles_;
  int begin_ = 0;
  int end_ = 0;
  int turn_ = 0;
};

// What the threads of a block know of their place.
struct Place {
  int warp;
  int lane;
  int rank;        // in the cluster: the ranks share tiles and cut k
  int first_tile;  // tiles first_tile, first_tile + tile_step, ...: the chip sweeps w in order
  int tile_step;
  int tiles;

  __device__ Place(const StreamTiles& all, int ranks)
      : warp(static_cast<int>(threadIdx.x) / kWarp),
        lane(static_cast<int>(threadIdx.x) % kWarp),
        rank(static_cast<int>(blockIdx.x) % ranks),
        first_tile(static_cast<int>(blockIdx.x) / ranks),
        tile_step(static_cast<int>(gridDim.x) / ranks),
        tiles((all.count - first_tile + tile_step - 1) / tile_step) {}
};

// The ring of one streaming warp; lane 0 asks for the pieces. A finishing warp has none.
class Ring {
 public:
  __device__ Ring(const StreamShape& shape, const Place& place, const StreamTiles& tiles,
                  const CUtensorMap* map, uint32_t shared)
      : base_(shared + place.warp * shape.stages * kStreamUnitBytes),
        barriers_(shared + shape.ring_barriers + place.warp * shape.stages * 8),
        stages_(shape.stages),
        place_(place),
        tiles_(tiles),
        map_(map),
        policy_(evict_first_policy()),
        cursor_(shape, place.rank * (shape.parts / shape.ranks), place.warp,
                place.warp < kStreamWarps ? place.tiles : 0) {
    if (place.warp >= kStreamWarps) return;
    if (place.lane == 0) prefetch_map(map);
    if (place.lane < stages_) {
      init_barrier(barriers_ + place.lane * 8, 1);
      publish_barriers();
    }
    __syncwarp();
    skip_empty_parts();
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
  __device__ void skip_empty_parts() {
    while (!cursor_.has_unit() && !cursor_.done()) cursor_.next_part();
  }
  __device__ void refill(int stage) {
    if (cursor_.done()) return;
    if (place_.lane == 0) {
      const uint32_t barrier = barriers_ + stage * 8;
      const uint32_t to = base_ + stage * kStreamUnitBytes;
      const int row = stream_tile_row(tiles_, place_.first_tile + cursor_.tile * place_.tile_step);
      const int chunk = cursor_.unit * (kStreamUnitColumns / kStreamSwizzleColumns);
      arrive_and_expect(barrier, kStreamUnitBytes);
      copy_box(to, map_, 0, row, chunk, barrier, policy_);
      copy_box(to + kBoxBytes, map_, 0, row + tiles_.second, chunk, barrier, policy_);
    }
    cursor_.next_unit();
    skip_empty_parts();
  }

  uint32_t base_;
  uint32_t barriers_;
  int stages_;
  const Place& place_;
  const StreamTiles& tiles_;
  const CUtensorMap* map_;
  uint64_t policy_;
  Cursor cursor_;
  int stage_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace triptych::stream
