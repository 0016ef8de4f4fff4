// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Streaming linear layers on sm_90. One block per multiprocessor. Four of its warps stream: each
// keeps a ring of pieces of w in flight through the copy engine, with no barrier wider than a warp,
// multiplies on tensor cores and leaves its part of a tile's sums in shared memory. Four others add
// the parts up in a fixed order and finish the tile. The ring is filled before the kernel waits for
// the one before it.
#include <algorithm>

#include "base/check.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/stream_input.cuh"

namespace triptych {
namespace {

using namespace stream;  // NOLINT: the parts of this kernel

constexpr int kColumnTile = 8;    // rows of x in one tensor-core product
constexpr int kAtomBytes = 1024;  // 8 rows of 64 columns

template <class T>
struct StreamLaunch {
  CUtensorMap map;
  StreamOp<T> op;
  StreamShape shape;
};

// acc += one piece of w (16 rows) times x.  w: two boxes of 8 rows, in columns of 64 that are
// swizzled: the 16 bytes with number c of row r lie at c ^ (r % 8).  x: address of the row that
// this lane loads in each column tile.
template <class T, int kColumnTiles>
__device__ void multiply_unit(float (&acc)[kColumnTiles][2][4], uint32_t w,
                              const uint32_t (&x)[kColumnTiles], int lane) {
  const int row = lane % 8;
  const int quarter = lane / 8;  // which of the four matrices of a load this lane addresses
  const uint32_t w_row = w + quarter % 2 * kBoxBytes + row * 128;
#pragma unroll
  for (int c = 0; c < kStreamUnitColumns / kStreamSwizzleColumns; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a[2][4];
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int vector = half * 4 + s * 2 + quarter / 2;
        load_matrices(a[s], w_row + c * kAtomBytes + ((vector ^ row) << 4));
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        uint32_t b[4];
        load_matrices(b, x[j] + c * 128 + half * 64);
        mma_m16n8k16<T>(acc[j][0], a[0][0], a[0][1], a[0][2], a[0][3], b[0], b[1]);
        mma_m16n8k16<T>(acc[j][1], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
      }
    }
  }
}

// Where the streaming warps leave the parts of a tile's sums for the finishing warps: a slot is
// [parts * kStreamWarps, m, kStreamSumStride] f32. In a cluster the ranks finish tiles in turn.
struct Slots {
  uint32_t base;
  uint32_t full;   // barriers [slots]: all parts are there
  uint32_t empty;  // barriers [slots * ranks]: the sums were read, of each rank's slots

  __device__ Slots(const StreamShape& shape, uint32_t shared)
      : base(shared + shape.sums),
        full(shared + shape.slot_barriers),
        empty(full + shape.slots * 8) {}
};

template <int kColumnTiles, bool kCluster>
__device__ void store_sums(const float (&acc)[kColumnTiles][2][4], uint32_t slice_sums, int m,
                           int lane) {
  const int row = lane / 4;
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = j * kColumnTile + lane % 4 * 2 + i % 2;
      if (column >= m) continue;
      const uint32_t to =
          slice_sums + (column * kStreamSumStride + row + i / 2 * kStreamTilePairs) * 4;
      store_shared<kCluster>(to, acc[j][0][i] + acc[j][1][i]);
    }
  }
}

template <class T, int kColumnTiles, bool kCluster>
__device__ void stream_tiles(const StreamLaunch<T>& a, const Place& place, Ring& ring,
                             uint32_t shared) {
  const StreamShape& shape = a.shape;
  const Slots slots(shape, shared);
  const int m = a.op.m;
  const int first_part = place.rank * (shape.parts / shape.ranks);
  const int first_unit = first_part * shape.units_per_part;
  uint32_t x[kColumnTiles];
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    const int row = min(j * kColumnTile + place.lane % 8, m - 1);  // rows past m: never stored
    x[j] = shared + shape.x + row * shape.x_stride + place.lane / 8 * 16;
  }
  for (Cursor cursor(shape, first_part, place.warp, place.tiles); !cursor.done();
       cursor.next_part()) {
    const int slice = cursor.slice();
    const uint32_t x_barriers = shared + shape.x_barriers + cursor.part * shape.chunks_per_part * 8;
    float acc[kColumnTiles][2][4] = {};
    for (int chunk = 0; cursor.has_unit(); cursor.next_unit(), ++chunk) {
      wait_for_barrier(x_barriers + chunk * 8, 0);
      const uint32_t w = ring.wait();
      const int offset = (cursor.unit - first_unit) * kStreamUnitColumns * 2;
      uint32_t x_unit[kColumnTiles];
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) x_unit[j] = x[j] + offset;
      multiply_unit<T, kColumnTiles>(acc, w, x_unit, place.lane);
      ring.release();
    }
    const int turn = cursor.tile / shape.ranks;  // of the rank that finishes the tile
    const int slot = turn % shape.slots;
    const int use = turn / shape.slots;
    const int owner = cursor.tile % shape.ranks;
    if (use > 0) {
      wait_for_ranks<kCluster>(slots.empty + (slot * shape.ranks + owner) * 8, (use - 1) & 1);
    }
    uint32_t sums = slots.base + slot * shape.slot_bytes +
                    ((first_part + cursor.part) * kStreamWarps + slice) * m * kStreamSumStride * 4;
    uint32_t full = slots.full + slot * 8;
    if constexpr (kCluster) {
      sums = shared_address_of_rank(sums, static_cast<unsigned>(owner));
      full = shared_address_of_rank(full, static_cast<unsigned>(owner));
    }
    store_sums<kColumnTiles, kCluster>(acc, sums, m, place.lane);
    __syncwarp();
    if (place.lane == 0) arrive<kCluster>(full);
  }
}

// Finishing warps work in groups that take turns; a group has a lane for each pair of each row.
__device__ int row_to_finish(const StreamShape& shape, const Place& place) {
  const int warp = (place.warp - kStreamWarps) % shape.finish_warps;
  return (warp * kWarp + place.lane) / kStreamTilePairs;
}

// factor: of all sums of this lane's row.
template <class T, StreamEpilogue kEpilogue, bool kCluster>
__device__ void finish_tiles(const StreamLaunch<T>& a, const Place& place, int row,
                             const unsigned char* memory, uint32_t shared, float factor) {
  const StreamShape& shape = a.shape;
  const Slots slots(shape, shared);
  const int warp = place.warp - kStreamWarps;
  const int groups = shape.finish_groups;
  if (warp >= groups * shape.finish_warps) return;
  const int pair = place.lane % kStreamTilePairs;
  const bool exists = row < a.op.m;
  const bool split = stream_pairs_are_split(a.op.tiles);
  const int first = split ? pair : 2 * pair;
  const int second = split ? pair + kStreamTilePairs : first + 1;
  const int owned = (place.tiles - place.rank + shape.ranks - 1) / shape.ranks;
  for (int turn = warp / shape.finish_warps; turn < owned; turn += groups) {
    StreamPair<T, kEpilogue> out;
    const int tile = place.first_tile + (turn * shape.ranks + place.rank) * place.tile_step;
    if (exists) out.prepare(a.op, tile, pair, row);
    const int slot = turn % shape.slots;
    wait_for_ranks<kCluster>(slots.full + slot * 8, turn / shape.slots & 1);
    const float* sums = reinterpret_cast<const float*>(memory + shape.sums) +
                        slot * (shape.slot_bytes / 4) + row * kStreamSumStride;
    float2 sum = make_float2(0.0f, 0.0f);
    if (exists) {
#pragma unroll 4
      for (int i = 0; i < shape.parts * kStreamWarps; ++i) {
        sum.x += sums[i * a.op.m * kStreamSumStride + first];
        sum.y += sums[i * a.op.m * kStreamSumStride + second];
      }
    }
    __syncwarp();
    // Ranks that will not write into the slot again may have ended: they are not told.
    const uint32_t empty = slots.empty + (slot * shape.ranks + place.rank) * 8;
    const int next_tile = (turn + shape.slots) * shape.ranks + place.rank;
    if (next_tile < place.tiles) {
      if (kCluster && place.lane < shape.ranks) {
        arrive_at_remote_barrier(shared_address_of_rank(empty, static_cast<unsigned>(place.lane)));
      } else if (!kCluster && place.lane == 0) {
        arrive_at_barrier(empty);
      }
    }
    if (exists) out.finish(make_float2(sum.x * factor, sum.y * factor));
  }
}

// Barriers of the whole block.
__device__ void init_block_barriers(const StreamShape& shape, bool normed, uint32_t shared) {
  const Slots slots(shape, shared);
  for (int i = 0; i < shape.slots; ++i) {
    init_barrier(slots.full + i * 8, static_cast<uint32_t>(shape.parts * kStreamWarps));
  }
  for (int i = 0; i < shape.slots * shape.ranks; ++i) {
    init_barrier(slots.empty + i * 8, static_cast<uint32_t>(shape.finish_warps));
  }
  const int chunks = shape.parts / shape.ranks * shape.chunks_per_part;
  for (int i = 0; i < chunks; ++i) {
    init_barrier(shared + shape.x_barriers + i * 8, normed ? kFinishWarps : 1);
    init_barrier(shared + shape.x_barriers + (chunks + i) * 8, 1);  // the rows as they are
  }
  init_barrier(shared + shape.squares_barrier, static_cast<uint32_t>(shape.ranks * kFinishWarps));
  publish_barriers();
}

template <class T, int kRows, bool kCluster>
__device__ float bring_normed(const StreamLaunch<T>& a, int rank, int row, unsigned char* memory,
                              uint32_t shared, int thread) {
  NormedRows<T, kRows, kCluster> rows(a.op, a.shape, memory, shared, rank, thread);
  rows.run();
  return rows.factor(min(row, a.op.m - 1));
}

// Brings x, when the kernels before this one have ended, and gives what the sums of row `row` are
// multiplied by.
template <class T, int kColumnTiles, bool kCluster>
__device__ float bring_input(const StreamLaunch<T>& a, const Place& place, int row,
                             unsigned char* memory, uint32_t shared) {
  const int thread = static_cast<int>(threadIdx.x) - kStreamWarps * kWarp;
  if (a.op.norm == nullptr) {
    wait_for_previous_kernels();
    copy_rows(a.op, a.shape, Columns(a.shape, place.rank, a.op.k), shared + a.shape.x,
              shared + a.shape.x_barriers, thread);
    return 1.0f;
  }
  if constexpr (kColumnTiles > 1) {
    return bring_normed<T, 16, kCluster>(a, place.rank, row, memory, shared, thread);
  } else {
    if (a.op.m == 1) {
      return bring_normed<T, 1, kCluster>(a, place.rank, row, memory, shared, thread);
    }
    return bring_normed<T, 8, kCluster>(a, place.rank, row, memory, shared, thread);
  }
}

template <class T, StreamEpilogue kEpilogue, int kColumnTiles, bool kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    stream_kernel(const __grid_constant__ StreamLaunch<T> a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const StreamShape& shape = a.shape;
  const uint32_t shared = shared_address(memory);
  const Place place(a.op.tiles, kCluster ? shape.ranks : 1);
  allow_next_kernel();
  Ring ring(shape, place, a.op.tiles, &a.map, shared);
  if (threadIdx.x == kStreamWarps * kWarp) {
    init_block_barriers(shape, a.op.norm != nullptr, shared);
  }
  clear_past_end(shape, Columns(shape, place.rank, a.op.k), a.op.m, memory + shape.x);
  if constexpr (kCluster) {
    arrive_at_cluster();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
  if (place.warp < kStreamWarps) {  // reads nothing that an earlier kernel wrote but through x
    stream_tiles<T, kColumnTiles, kCluster>(a, place, ring, shared);
  } else {
    const int row = row_to_finish(shape, place);
    const float factor = bring_input<T, kColumnTiles, kCluster>(a, place, row, memory, shared);
    finish_tiles<T, kEpilogue, kCluster>(a, place, row, memory, shared, factor);
  }
}

template <class T>
using Kernel = void (*)(const StreamLaunch<T>);

template <class T, int kColumnTiles, bool kCluster>
Kernel<T> choose_epilogue(StreamEpilogue epilogue) {
  switch (epilogue) {
    case StreamEpilogue::kLinear:
      return stream_kernel<T, StreamEpilogue::kLinear, kColumnTiles, kCluster>;
    case StreamEpilogue::kQkv:
      return stream_kernel<T, StreamEpilogue::kQkv, kColumnTiles, kCluster>;
    case StreamEpilogue::kGateUp:
      return stream_kernel<T, StreamEpilogue::kGateUp, kColumnTiles, kCluster>;
  }
  return nullptr;
}
template <class T>
Kernel<T> choose_kernel(StreamEpilogue epilogue, int m, bool cluster) {
  if (m <= kColumnTile) {
    return cluster ? choose_epilogue<T, 1, true>(epilogue) : choose_epilogue<T, 1, false>(epilogue);
  }
  return cluster ? choose_epilogue<T, 2, true>(epilogue) : choose_epilogue<T, 2, false>(epilogue);
}

int num_multiprocessors() {
  int device = 0;
  int count = 0;
  TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
  TRIPTYCH_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

// Clusters that run at the same time: those of 4 and more do not fill every device. A block of a
// second wave would start when another has ended.
template <class T>
int num_clusters(Kernel<T> kernel, const StreamShape& shape) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(shape.ranks), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.ranks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  TRIPTYCH_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&count, kernel, &config));
  return std::max(count, 1);
}

}  // namespace

bool stream_sm90a_fits(int64_t m, int64_t k) { return make_stream_shape(m, k).shared_bytes > 0; }

template <class T>
void launch_stream_sm90a(const StreamOp<T>& op, StreamEpilogue epilogue, const CUtensorMap& map,
                         LaunchOrder order, cudaStream_t stream) {
  const StreamLaunch<T> launch = {map, op, make_stream_shape(op.m, op.k)};
  const StreamShape& shape = launch.shape;
  const Kernel<T> kernel = choose_kernel<T>(epilogue, op.m, shape.ranks > 1);
  TRIPTYCH_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           shape.shared_bytes));
  const int groups = shape.ranks > 1 ? num_clusters(kernel, shape) : num_multiprocessors();
  const auto blocks = static_cast<unsigned>(std::min(groups, op.tiles.count) * shape.ranks);
  TRIPTYCH_CUDA_CHECK(launch_kernel(kernel, dim3(blocks), dim3(kThreads),
                                    static_cast<size_t>(shape.shared_bytes), stream, order,
                                    static_cast<unsigned>(shape.ranks), launch));
}

template void launch_stream_sm90a(const StreamOp<__half>&, StreamEpilogue, const CUtensorMap&,
                                  LaunchOrder, cudaStream_t);
template void launch_stream_sm90a(const StreamOp<__nv_bfloat16>&, StreamEpilogue,
                                  const CUtensorMap&, LaunchOrder, cudaStream_t);

}  // namespace triptych
