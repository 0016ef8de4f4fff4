// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How one block of the wide streaming kernels (up to 128 rows of x) cuts its work and its shared
// memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace triptych {

inline constexpr int kMaxWideRanks = 8;    ///< The largest cluster that every device can launch.
inline constexpr int kWideBlockRows = 64;  ///< Rows of w that a warpgroup multiplies.

/// Sizes for up to kRows rows of x: 8, 16, 32, 64 or 128.
template <int kRows>
struct WideConfig {
  /// Warpgroups that multiply, each 64 rows of the tile. x is read from L2 once for each tile, so
  /// many rows of x want large tiles.
  static constexpr int kGroups = kRows <= 32 ? 2 : 4;
  static constexpr int kTileRows = kGroups * kWideBlockRows;
  /// Pieces of 64 columns in a stage: 256 consecutive bytes of each row where they fit.
  static constexpr int kPieces = kRows <= 32 ? 2 : 1;
  static constexpr int kPieceBytes = kWideBlockRows * 128;
  static constexpr int kStageWeightBytes = kGroups * kPieces * kPieceBytes;
  static constexpr int kStageBytes = kStageWeightBytes + kRows * kPieces * 128;
  /// Rows of x whose sums the ranks exchange in one pass.
  static constexpr int kPassRows = kRows < 32 ? kRows : 32;
  static constexpr int kPasses = kRows / kPassRows;
  static constexpr int kBuffers = kPasses > 1 ? 2 : 1;
  /// f32 from one row's sums to the next: 4 more than the rows, so that a warp's stores of four
  /// rows of x by eight of w meet no bank twice.
  static constexpr int kSumStride = kTileRows + 4;
  static constexpr int kBufferBytes = kPassRows * kSumStride * 4;
  static constexpr int kBarrierBytes = 256;
  static constexpr int kBesideRing = kBuffers * kBufferBytes + kBarrierBytes;
  static constexpr int kMaxShared = 227 << 10;  // of a block on sm_90
  /// The block of decode attention that comes before or after finds room beside this one.
  static constexpr int kFriendlyShared = 189 << 10;
  static constexpr int kShared = kRows <= 32 ? kFriendlyShared : kMaxShared;
  static constexpr int kStages = (kShared - kBesideRing) / kStageBytes;
  static constexpr int kBuffersAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kBuffersAt + kBuffers * kBufferBytes;
  static constexpr int kSharedBytes = kBarriersAt + kBarrierBytes;
  static constexpr int kMultiplyThreads = kGroups * 128;
  static constexpr int kThreads = kMultiplyThreads + 32;  // the last warp fills the ring

  static_assert(kStages >= 3);
  static_assert((2 * kStages + 2 * kBuffers) * 8 <= kBarrierBytes);
};

/// Blocks of a cluster share a tile and cut k: its stages in equal parts, up to the last ones.
struct WideSplit {
  int32_t tiles = 0;
  int32_t stages = 0;  ///< Of a whole tile.
  int32_t ranks = 0;   ///< A power of two.
  int32_t stages_per_rank = 0;
  int32_t clusters = 0;
};

/// The split whose busiest block has least to do. clusters[i]: how many clusters of 2^i blocks run
/// at the same time. The exchange of sums that ends a tile counts as half a stage.
inline WideSplit choose_wide_split(int64_t tiles, int64_t stages, const int (&clusters)[4]) {
  WideSplit best;
  int64_t best_cost = 0;
  for (int i = 0; i < 4; ++i) {
    const int64_t ranks = int64_t{1} << i;
    if (clusters[i] == 0 || ranks > std::max<int64_t>(stages, 1)) continue;
    const int64_t running = std::min<int64_t>(tiles, clusters[i]);
    const int64_t rounds = (tiles + running - 1) / running;
    const int64_t each = (stages + ranks - 1) / ranks;
    const int64_t cost = rounds * (2 * each + 1);
    if (best.ranks != 0 && cost >= best_cost) continue;
    best_cost = cost;
    best = {static_cast<int32_t>(tiles), static_cast<int32_t>(stages), static_cast<int32_t>(ranks),
            static_cast<int32_t>(each), static_cast<int32_t>(running)};
  }
  return best;
}

}  // namespace triptych
