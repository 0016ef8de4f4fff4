// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How the wide streaming kernels (up to 32 rows of x) cut their work and their shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/stream_op.h"

namespace triptych {

inline constexpr int kWideRankChoices = 3;  ///< Clusters of 1, 2 and 4 blocks.
inline constexpr int kMaxWideStages = 12;

inline constexpr int kWideRows = 32;  ///< Of x, at most.
/// Warpgroups that multiply, each up to 64 rows of the tile. x is read from L2 once for each tile.
inline constexpr int kWideGroups = 2;
inline constexpr int kWideMultiplyThreads = kWideGroups * 128;
inline constexpr int kWideThreads = kWideMultiplyThreads + 32;  ///< The last warp fills the ring.

/// A tile is kWideGroups boxes of `box_rows` rows of w, the second one tiles.second further. Blocks
/// of a cluster share a tile and cut k: its stages in equal parts, up to the last ones.
struct WideShape {
  StreamTiles tiles;
  int32_t box_rows = 0;
  int32_t pieces = 0;  ///< Of 64 columns, in a stage.
  int32_t stages = 0;  ///< Of a whole tile.
  int32_t ranks = 0;
  int32_t stages_per_rank = 0;
  int32_t clusters = 0;
  int32_t ring_stages = 0;
  int32_t weight_bytes = 0;  ///< Of a stage.
  int32_t stage_bytes = 0;
  /// f32 from one row's sums to the next: 4 more than the rows of a tile, so that a warp's stores
  /// of four rows of x by eight of w meet no bank twice.
  int32_t sum_stride = 0;
  // Offsets in shared memory, bytes; the ring is at 0.
  int32_t sums = 0;
  int32_t received = 0;
  int32_t barriers = 0;
  int32_t shared_bytes = 0;
};

/// What is cut: `span` rows of w or, for split pairs, of one half of w or of each head.
struct WideTask {
  int64_t n, k;
  bool split;
  int64_t half;  ///< Rows from one row of a split pair to the other.
};

namespace wide_shape {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline constexpr int64_t kMaxShared = 227 << 10;  // of a block on sm_90
inline constexpr int64_t kBarrierBytes = 256;
/// Products read 64 rows where a box has fewer: past the last one, too.
inline constexpr int64_t kOverrun = 7 << 10;
inline constexpr int64_t kMaxColumns = 256;  // of a stage

/// Tiles of groups * box_rows rows; 0 if pairs would not share a tile.
inline int64_t count_tiles(const WideTask& task, int groups, int64_t box_rows) {
  if (!task.split) return ceil_div(task.n, groups * box_rows);
  const int64_t step = groups / 2 * box_rows;
  if (2 * task.half == task.n) return ceil_div(task.half, step);
  return task.half % step == 0 ? task.n / 2 / step : 0;
}

/// Ring and the rest for stages of `pieces`; false if fewer than four stages fit.
inline bool lay_out(WideShape& s, int pieces) {
  const int64_t tile_rows = int64_t{kWideGroups} * s.box_rows;
  const int64_t stride = tile_rows + 4;
  const int64_t sums = kWideRows * stride * 4;
  const int64_t beside = sums * (s.ranks > 1 ? 2 : 1) + kBarrierBytes;
  const int64_t weights = tile_rows * pieces * 128;
  const int64_t stage = weights + int64_t{kWideRows} * pieces * 128;
  const int64_t room = kMaxShared - std::max(beside, kOverrun);
  s.pieces = pieces;
  s.ring_stages = static_cast<int32_t>(std::min<int64_t>(room / stage, kMaxWideStages));
  s.weight_bytes = static_cast<int32_t>(weights);
  s.stage_bytes = static_cast<int32_t>(stage);
  s.sum_stride = static_cast<int32_t>(stride);
  s.sums = static_cast<int32_t>(s.ring_stages * stage);
  s.received = s.sums + static_cast<int32_t>(sums);
  s.barriers = s.sums + static_cast<int32_t>(beside - kBarrierBytes);
  s.shared_bytes = s.sums + static_cast<int32_t>(std::max(beside, kOverrun));
  return s.ring_stages >= 4;
}

}  // namespace wide_shape

/// The shape whose busiest block has least to do: bytes of w, those of x at half their price (they
/// come from L2), and what the end of a tile costs, as bytes. clusters[i]: how many clusters of 2^i
/// blocks run at the same time.
inline WideShape make_wide_shape(const WideTask& task, const int (&clusters)[kWideRankChoices]) {
  using namespace wide_shape;
  constexpr int64_t kTileCost = 24 << 10;
  constexpr int64_t kExchangeCost = 40 << 10;
  WideShape s;
  int64_t best = 0;
  for (int i = 0; i < kWideRankChoices; ++i) {
    for (int64_t box_rows = 64; box_rows > 0; box_rows -= 8) {
      const int64_t tiles = count_tiles(task, kWideGroups, box_rows);
      if (tiles == 0 || clusters[i] == 0) continue;
      const int64_t running = std::min<int64_t>(tiles, clusters[i]);
      const int64_t columns = ceil_div(ceil_div(task.k, kMaxColumns), 1 << i) * kMaxColumns;
      const int64_t cost =
          ceil_div(tiles, running) * (columns * (2 * kWideGroups * box_rows + kWideRows) +
                                      kTileCost + (i > 0 ? kExchangeCost : 0));
      if (best != 0 && cost >= best) continue;
      best = cost;
      const int64_t step = (task.split ? kWideGroups / 2 : kWideGroups) * box_rows;
      const bool heads = task.split && 2 * task.half != task.n;
      s.tiles = {static_cast<int32_t>(tiles),
                 static_cast<int32_t>(heads ? task.half / step : tiles),
                 static_cast<int32_t>(heads ? 2 * task.half : 0),
                 static_cast<int32_t>(step),
                 static_cast<int32_t>(task.split ? task.half : kWideGroups / 2 * box_rows),
                 task.split};
      s.box_rows = static_cast<int32_t>(box_rows);
      s.ranks = 1 << i;
      s.clusters = static_cast<int32_t>(running);
    }
  }
  if (s.ranks == 0) return s;
  if (!lay_out(s, 4) && !lay_out(s, 2)) lay_out(s, 1);
  s.stages = static_cast<int32_t>(ceil_div(task.k, s.pieces * kStreamSwizzleColumns));
  s.stages_per_rank = static_cast<int32_t>(ceil_div(s.stages, s.ranks));
  return s;
}

}  // namespace triptych
