// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// StreamShape: how one block of the sm_90 streaming kernel cuts its work and its shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/stream_op.h"

namespace triptych {

/// One warp a scheduler: more of them share the same bandwidth in smaller pieces.
inline constexpr int kStreamWarps = 4;
inline constexpr int kFinishWarps = 4;
inline constexpr int kStreamUnitBytes = kStreamTileRows * kStreamUnitColumns * 2;
/// f32 from one row's sums of a tile to the next: 16 and 4 more, so that a warp's stores of four
/// rows by eight sums meet no bank twice.
inline constexpr int kStreamSumStride = kStreamTileRows + 4;
/// Columns of x that come into shared memory together: a unit for each streaming warp.
inline constexpr int kStreamChunkColumns = kStreamWarps * kStreamUnitColumns;
/// Bytes from one row of a chunk to the next: 16 more than the columns, so that 8 rows meet no bank
/// twice.
inline constexpr int kStreamChunkStride = kStreamChunkColumns * 2 + 16;
/// Tiles that one pass over x serves where x does not stay: what a block has of w as wide as the
/// chip has blocks.
inline constexpr int kStreamTilesTogether = 2;

/// A block's work on a product and its shared memory. Offsets in bytes; the ring is at 0 (its boxes
/// are aligned to 1024).
struct StreamShape {
  int32_t units = 0;   ///< Pieces of a tile along k; the last one may reach past k.
  int32_t chunks = 0;  ///< Of x; the last one may reach past k.
  /// Whether all chunks of x stay in shared memory. Otherwise they come again for every pass over
  /// k.
  bool x_stays = false;
  int32_t together = 1;  ///< Tiles that one pass serves.
  int32_t stages = 0;    ///< Pieces of w in flight, each streaming warp.
  int32_t x_slots = 0;   ///< Chunks of x.
  int32_t x_slot_bytes = 0;
  int32_t slots = 0;  ///< Tiles whose sums may wait for the finishing warps.
  int32_t slot_bytes = 0;
  int32_t finish_warps = 0;  ///< Warps that finish one tile.
  /// Groups of such warps that take turns: not more than slots, since a group that has not seen one
  /// use of a slot end would take the next one for it.
  int32_t finish_groups = 0;
  int32_t x = 0;
  int32_t sums = 0;
  int32_t squares = 0;
  int32_t ring_barriers = 0;
  int32_t slot_barriers = 0;
  int32_t x_barriers = 0;
  int32_t shared_bytes = 0;
};

namespace stream_shape {

inline constexpr int64_t kMaxShared = 227 << 10;  // of a block on sm_90
/// The block of decode attention that comes before or after finds room beside this one.
inline constexpr int64_t kFriendlyShared = 189 << 10;
inline constexpr int64_t kStageBytes = int64_t{kStreamWarps} * kStreamUnitBytes;
inline constexpr int64_t kMaxStages = 5;  // 160 KB in flight
inline constexpr int64_t kMinStages = 2;
inline constexpr int64_t kMinXSlots = 3;  // one is multiplied, one ready, one on its way

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Bytes of the things beside the ring.
struct Sizes {
  int64_t m, x_slot, slots, slot, squares;

  explicit constexpr Sizes(int64_t rows)
      : m(rows),
        x_slot(rows * kStreamChunkStride),
        slots(rows > 4 ? 2 : 4),
        slot(kStreamWarps * rows * kStreamSumStride * 4),
        squares(kFinishWarps * rows * 4) {}
  [[nodiscard]] constexpr int64_t barriers(int64_t x_slots) const {
    return (kStreamWarps * kMaxStages + 2 * slots + 3 * x_slots) * 8;
  }
  [[nodiscard]] constexpr int64_t all(int64_t x_slots) const {
    return x_slots * x_slot + slots * slot + squares + barriers(x_slots) + 8;
  }
  [[nodiscard]] constexpr int64_t stages(int64_t x_slots) const {
    const int64_t friendly = (kFriendlyShared - all(x_slots)) / kStageBytes;
    if (friendly >= 3) return std::min(friendly, kMaxStages);
    return std::min<int64_t>((kMaxShared - all(x_slots)) / kStageBytes, 3);
  }
};

}  // namespace stream_shape

/// For m rows and k columns; `tiles` are a block's, at most. x stays where a block would read it
/// more than once, if it fits, and where it takes no stage from the ring.
constexpr StreamShape make_stream_shape(int64_t m, int64_t k, int64_t tiles) {
  using namespace stream_shape;
  const Sizes sizes(m);
  const int64_t units = ceil_div(k, kStreamUnitColumns);
  const int64_t chunks = ceil_div(units, kStreamWarps);
  const bool reads_again = tiles > kStreamTilesTogether && sizes.stages(chunks) >= kMinStages;
  int64_t x_slots = reads_again ? chunks : std::min(chunks, kMinXSlots);
  while (x_slots < chunks && sizes.stages(x_slots + 1) == sizes.stages(x_slots)) ++x_slots;

  StreamShape s;
  s.units = static_cast<int32_t>(units);
  s.chunks = static_cast<int32_t>(chunks);
  s.x_stays = chunks <= x_slots;
  s.together = s.x_stays ? 1 : kStreamTilesTogether;
  s.stages = static_cast<int32_t>(sizes.stages(x_slots));
  s.x_slots = static_cast<int32_t>(x_slots);
  s.x_slot_bytes = static_cast<int32_t>(sizes.x_slot);
  s.slots = static_cast<int32_t>(sizes.slots);
  s.slot_bytes = static_cast<int32_t>(sizes.slot);
  s.finish_warps = m <= 4 ? 1 : 2;
  s.finish_groups = std::min(kFinishWarps / s.finish_warps, s.slots);
  s.x = static_cast<int32_t>(s.stages * kStageBytes);
  s.sums = s.x + static_cast<int32_t>(x_slots * sizes.x_slot);
  s.squares = s.sums + static_cast<int32_t>(sizes.slots * sizes.slot);
  s.ring_barriers = static_cast<int32_t>(ceil_div(s.squares + sizes.squares, 8) * 8);
  s.slot_barriers = s.ring_barriers + static_cast<int32_t>(kStreamWarps * kMaxStages * 8);
  s.x_barriers = s.slot_barriers + 2 * s.slots * 8;
  s.shared_bytes = s.x_barriers + 3 * s.x_slots * 8;
  return s;
}

}  // namespace triptych
