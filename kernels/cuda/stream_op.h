// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What the kernels behind kernels/cuda/stream_linear.h are told, the same for every device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/kv_view.h"
#include "kernels/cuda/launch.h"

namespace triptych {

enum class StreamEpilogue : uint8_t { kLinear, kQkv, kGateUp };

inline constexpr int kStreamTileRows = 16;  ///< Rows of w in one tensor-core product.
inline constexpr int kStreamTilePairs = kStreamTileRows / 2;
/// Columns of w that arrive in one piece: 8 KB a tile, 512 consecutive bytes of each row. With half
/// of that, short matrices do not reach the bandwidth; twice as much gains nothing.
inline constexpr int kStreamUnitColumns = 256;
inline constexpr int kStreamSwizzleColumns = 64;  ///< 128 bytes: one row of a swizzled box.

/// A tile is two groups of 8 neighbouring rows of w. The number t tile has them at
///   first = t / per_group * group_rows + t % per_group * step      and      first + second,
/// so that the two rows of a pair (gate and up, or the halves of a rotated head) share a tile.
struct StreamTiles {
  int32_t count = 0;
  int32_t per_group = 1;
  int32_t group_rows = 0;
  int32_t step = 0;
  int32_t second = 0;
  /// Pair p is the p-th row of each group, or else the rows 2p and 2p + 1 of the tile.
  bool split = false;
};

/// One product with what stands before and after it. Fields that an epilogue does not name are not
/// read. Shapes are those of stream_linear.h.
template <class T>
struct StreamOp {
  const T* x = nullptr;
  const T* norm = nullptr;
  float eps = 0.0f;
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
  const T* w = nullptr;
  StreamTiles tiles;
  T* y = nullptr;  ///< kLinear: [m, n], kGateUp: [m, n / 2], kQkv: q.
  bool accumulate = false;
  const T* bias = nullptr;
  KvView<T> kv;
  int32_t num_q_heads = 0;
  const int32_t* positions = nullptr;
  const int32_t* row_sequences = nullptr;
  const float* inv_freq = nullptr;
};

/// Requires sm_90 exactly and m up to kMaxNarrowStreamRows.
template <class T>
void launch_stream_sm90a(const StreamOp<T>& op, StreamEpilogue epilogue, LaunchOrder order,
                         cudaStream_t stream);

/// Runs on every device that is compiled for.
template <class T>
void launch_stream_general(const StreamOp<T>& op, StreamEpilogue epilogue, LaunchOrder order,
                           cudaStream_t stream);

}  // namespace triptych
