// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// StreamShape: how one block of the sm_90 streaming kernels cuts its work and its shared memory.
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
/// Columns of x that the streaming warps wait for at a time: a unit each.
inline constexpr int kStreamChunkColumns = kStreamWarps * kStreamUnitColumns;
inline constexpr int kMaxStreamParts = 8;  ///< The largest cluster that every device can launch.

struct StreamShape {
  int32_t units = 0;            ///< Pieces of a tile along k; the last one may reach past k.
  int32_t parts = 0;            ///< k is cut into parts: the order of the sums knows only these.
  int32_t units_per_part = 0;   ///< Whole chunks; the last parts may have less, or nothing.
  int32_t chunks_per_part = 0;  ///< Of x.
  int32_t ranks = 0;            ///< Blocks of a cluster that share the parts.
  int32_t stages = 0;           ///< Pieces in flight, each warp.
  int32_t slots = 0;            ///< Tiles of a rank whose sums may wait for the finishing warps.
  int32_t slot_bytes = 0;
  int32_t finish_warps = 0;  ///< Warps that finish one tile.
  /// Groups of such warps that take turns: not more than slots, since a group that has not seen one
  /// use of a slot end would take the next one for it.
  int32_t finish_groups = 0;
  int32_t x_stride = 0;  ///< Bytes; 16 more than the columns, so that 8 rows meet no bank twice.
  // Offsets in shared memory, bytes; the ring is at 0 (its boxes are aligned to 1024).
  int32_t x = 0;
  int32_t sums = 0;
  int32_t squares = 0;
  int32_t ring_barriers = 0;
  int32_t slot_barriers = 0;
  int32_t x_barriers = 0;  ///< Of each chunk: ready to be multiplied; then: copied as it is.
  int32_t squares_barrier = 0;
  int32_t shared_bytes = 0;
};

namespace stream_shape {

inline constexpr int64_t kMaxShared = 227 << 10;  // of a block on sm_90
/// The block of decode attention that comes before or after finds room beside this one.
inline constexpr int64_t kFriendlyShared = 189 << 10;
inline constexpr int64_t kStageBytes = int64_t{kStreamWarps} * kStreamUnitBytes;
inline constexpr int64_t kMaxStages = 5;  // 160 KB in flight
inline constexpr int64_t kMinStages = 2;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Bytes of the things beside the ring, in their order.
struct Fixed {
  int64_t chunks_per_part, x_stride, slots, slot_bytes, squares_bytes, barrier_bytes, all;

  constexpr Fixed(int64_t m, int64_t units, int64_t parts, int64_t ranks)
      : chunks_per_part(ceil_div(ceil_div(units, parts), kStreamWarps)),
        x_stride(parts / ranks * chunks_per_part * kStreamChunkColumns * 2 + 16),
        slots(std::max<int64_t>((m > 4 ? 2 : 4) / ranks, 1)),
        slot_bytes(parts * kStreamWarps * m * kStreamSumStride * 4),
        squares_bytes(parts * kFinishWarps * m * 4),
        barrier_bytes((kStreamWarps * kMaxStages + slots * (1 + ranks) +
                       2 * (parts / ranks * chunks_per_part) + 1) *
                      8),
        all(m * x_stride + slots * slot_bytes + squares_bytes + barrier_bytes + 8) {}
  [[nodiscard]] constexpr bool fits() const { return all + kMinStages * kStageBytes <= kMaxShared; }
};

}  // namespace stream_shape

/// Of m rows and k columns. Parts depend on k and on m > 8 alone. Blocks form clusters only where x
/// does not fit one of them: the ranks wait for one another's sums at every tile, and clusters of
/// four and more leave multiprocessors idle. shared_bytes is 0 if x does not fit, even cut into
/// kMaxStreamParts.
constexpr StreamShape make_stream_shape(int64_t m, int64_t k) {
  using namespace stream_shape;
  const int64_t units = ceil_div(k, kStreamUnitColumns);
  const int64_t most = m > 8 ? 16 : 8;
  int64_t parts = 1;
  while (parts <= kMaxStreamParts && !Fixed(most, units, parts, parts).fits()) parts *= 2;
  if (parts > kMaxStreamParts) return {};
  int64_t ranks = 1;
  while (ranks < parts && !Fixed(m, units, parts, ranks).fits()) ranks *= 2;
  const Fixed fixed(m, units, parts, ranks);
  int64_t stages = std::min((kFriendlyShared - fixed.all) / kStageBytes, kMaxStages);
  if (stages < 3) stages = std::min<int64_t>((kMaxShared - fixed.all) / kStageBytes, 3);

  StreamShape s;
  s.units = static_cast<int32_t>(units);
  s.parts = static_cast<int32_t>(parts);
  s.units_per_part = static_cast<int32_t>(fixed.chunks_per_part * kStreamWarps);
  s.chunks_per_part = static_cast<int32_t>(fixed.chunks_per_part);
  s.ranks = static_cast<int32_t>(ranks);
  s.stages = static_cast<int32_t>(stages);
  s.slots = static_cast<int32_t>(fixed.slots);
  s.slot_bytes = static_cast<int32_t>(fixed.slot_bytes);
  s.finish_warps = m <= 4 ? 1 : m <= 8 ? 2 : 4;
  s.finish_groups = std::min(kFinishWarps / s.finish_warps, s.slots);
  s.x_stride = static_cast<int32_t>(fixed.x_stride);
  s.x = static_cast<int32_t>(stages * kStageBytes);
  s.sums = s.x + static_cast<int32_t>(m * fixed.x_stride);
  s.squares = s.sums + static_cast<int32_t>(fixed.slots * fixed.slot_bytes);
  s.ring_barriers = static_cast<int32_t>(ceil_div(s.squares + fixed.squares_bytes, 8) * 8);
  s.slot_barriers = s.ring_barriers + static_cast<int32_t>(kStreamWarps * kMaxStages * 8);
  s.x_barriers = s.slot_barriers + static_cast<int32_t>(fixed.slots * (1 + ranks) * 8);
  s.squares_barrier =
      s.x_barriers + static_cast<int32_t>(2 * (parts / ranks * fixed.chunks_per_part) * 8);
  s.shared_bytes = s.squares_barrier + 8;
  return s;
}

}  // namespace triptych
