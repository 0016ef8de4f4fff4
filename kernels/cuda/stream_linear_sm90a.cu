// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Streaming linear layers on sm_90. One block per multiprocessor. Four of its warps stream: each
// keeps a ring of pieces of w in flight through the copy engine, with no barrier wider than a warp,
// multiplies on tensor cores and leaves its part of a tile's sums in shared memory. Four others
// bring x, add the parts up in a fixed order and finish the tile. The ring is filled before the
// kernel waits for the one before it.
#include <algorithm>

#include "base/check.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/shared_limit.h"
#include "kernels/cuda/stream_input.cuh"
#include "kernels/cuda/stream_linear.h"
#include "kernels/cuda/stream_maps.h"

namespace triptych {
namespace {

using namespace stream;  // NOLINT: the parts of this kernel

constexpr int kAtomBytes = 1024;  // 8 rows of 64 columns

struct TileSums {
  float of[2][4] = {};  // two chains of products, half as long
};

// acc += one piece of w (16 rows) times x.  w: 16 rows of 64 columns after another, swizzled: the
// 16 bytes with number c of row r lie at c ^ (r % 8).  x: address of the row that this lane loads.
template <class T>
__device__ void multiply_unit(TileSums& acc, uint32_t w, uint32_t x, int lane) {
  const int row = lane % 8;
  const int quarter = lane / 8;  // which of the four matrices of a load this lane addresses
  const uint32_t w_row = w + quarter % 2 * kAtomBytes + row * 128;
#pragma unroll
  for (int c = 0; c < kStreamUnitColumns / kStreamSwizzleColumns; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a[2][4];
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int vector = half * 4 + s * 2 + quarter / 2;
        load_matrices(a[s], w_row + c * 2 * kAtomBytes + ((vector ^ row) << 4));
      }
      uint32_t b[4];
      load_matrices(b, x + c * 128 + half * 64);
      mma_m16n8k16<T>(acc.of[0], a[0][0], a[0][1], a[0][2], a[0][3], b[0], b[1]);
      mma_m16n8k16<T>(acc.of[1], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
    }
  }
}

// Where the streaming warps leave the parts of a tile's sums for the finishing warps: a slot is
// [kStreamWarps, m, kStreamSumStride] f32. The slots are filled in turn.
class SumsPlace {
 public:
  __device__ SumsPlace(const StreamShape& shape, uint32_t shared)
      : shape_(&shape), shared_(shared) {}

  __device__ void next() {
    if (++slot_ == shape_->slots) {
      slot_ = 0;
      ++use_;
    }
  }
  __device__ int offset() const { return shape_->sums + slot_ * shape_->slot_bytes; }
  __device__ int slot() const { return slot_; }
  __device__ uint32_t full() const { return barrier(0); }
  __device__ uint32_t empty() const { return barrier(shape_->slots); }
  __device__ uint32_t parity() const { return use_ & 1; }
  __device__ void wait_until_empty() const {
    if (use_ > 0) wait_for_barrier(empty(), (use_ - 1) & 1);
  }

  static __device__ void init_barriers(const StreamShape& shape, uint32_t shared) {
    SumsPlace place(shape, shared);
    for (int i = 0; i < shape.slots; ++i, place.next()) {
      init_barrier(place.full(), kStreamWarps * kWarpArrivals);
      init_barrier(place.empty(), static_cast<uint32_t>(shape.finish_warps) * kWarpArrivals);
    }
  }

 private:
  __device__ uint32_t barrier(int first) const {
    return shared_ + shape_->slot_barriers + (first + slot_) * 8;
  }

  const StreamShape* shape_;
  uint32_t shared_;
  int slot_ = 0;
  uint32_t use_ = 0;
};

__device__ void store_sums(const TileSums& acc, float* sums, int m, int lane) {
  const int row = lane / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = lane % 4 * 2 + i % 2;
    if (column >= m) continue;
    sums[column * kStreamSumStride + row + i / 2 * kStreamTilePairs] = acc.of[0][i] + acc.of[1][i];
  }
}

// Reads nothing that an earlier kernel wrote but through x.
template <class T>
__device__ void stream_tiles(const StreamLaunch<T>& a, Ring<T>& ring, unsigned char* memory,
                             uint32_t shared, int warp, int lane) {
  const StreamShape& shape = a.shape;
  const int m = a.op.m;
  const int tiles = block_tiles(a.op.tiles);
  // Rows past m: never stored.
  const int x_row = min(lane % 8, m - 1) * kStreamChunkStride + lane / 8 * 16;
  XPlace first_x(shape, shared);
  SumsPlace place(shape, shared);
  for (int tile = 0, units_before = 0; tile < tiles;
       tile += shape.together, units_before += shape.units) {
    const int group = min(shape.together, tiles - tile);
    const int slice = slice_of_warp(warp, units_before);
    XPlace x = first_x;
    TileSums acc[kStreamTilesTogether];
#pragma unroll 1
    for (int chunk = 0; chunk < shape.chunks; ++chunk, x.next()) {
      wait_for_barrier(x.ready(), x.parity());
      if (chunk * kStreamWarps + slice < shape.units) {
        const uint32_t x_unit = shared + x.offset() + x_row + slice * kStreamUnitColumns * 2;
#pragma unroll
        for (int t = 0; t < kStreamTilesTogether; ++t) {
          if (t >= group) break;
          multiply_unit<T>(acc[t], ring.wait(), x_unit, lane);
          ring.release();
        }
      }
      if (!shape.x_stays) arrive_as_warp(x.free());
    }
    if (!shape.x_stays) first_x = x;
#pragma unroll
    for (int t = 0; t < kStreamTilesTogether; ++t) {
      if (t >= group) break;
      place.wait_until_empty();
      float* const sums = reinterpret_cast<float*>(memory + place.offset());
      store_sums(acc[t], sums + slice * m * kStreamSumStride, m, lane);
      arrive_as_warp(place.full());
      place.next();
    }
  }
}

// Finishing warps work in groups that take turns; a group has a lane for each pair of each row.
struct Finisher {
  int group;
  int row;
  int pair;
  bool works;  // a warp past the last group does not

  __device__ Finisher(const StreamShape& shape, int thread)
      : group(thread / kWarp / shape.finish_warps),
        row((thread - group * shape.finish_warps * kWarp) / kStreamTilePairs),
        pair(thread % kStreamTilePairs),
        works(group < shape.finish_groups) {}
  __device__ bool has_turn(const StreamShape& shape, const SumsPlace& place) const {
    return works && place.slot() % shape.finish_groups == group;
  }
};

// factor: of all sums of this lane's row.
template <class T, StreamEpilogue kEpilogue>
__device__ void finish_tile(const StreamOp<T>& op, const SumsPlace& place, const Finisher& finisher,
                            int tile, const unsigned char* memory, float factor) {
  StreamPair<T, kEpilogue> out;
  const bool exists = finisher.row < op.m;
  const bool split = stream_pairs_are_split(op.tiles);
  const int first = split ? finisher.pair : 2 * finisher.pair;
  const int second = split ? finisher.pair + kStreamTilePairs : first + 1;
  if (exists) out.prepare(op, tile, finisher.pair, finisher.row);
  wait_for_barrier(place.full(), place.parity());
  float2 sum = make_float2(0.0f, 0.0f);
  if (exists) {
    const float* sums =
        reinterpret_cast<const float*>(memory + place.offset()) + finisher.row * kStreamSumStride;
#pragma unroll
    for (int i = 0; i < kStreamWarps; ++i) {
      sum.x += sums[i * op.m * kStreamSumStride + first];
      sum.y += sums[i * op.m * kStreamSumStride + second];
    }
  }
  arrive_as_warp(place.empty());
  if (exists) out.finish(make_float2(sum.x * factor, sum.y * factor));
}

// The epilogue is chosen here and not at compile time: a layer's products are one kernel, whose
// instructions stay near the multiprocessors from one to the next.
template <class T, int kRows>
__device__ void finish_tiles(const StreamLaunch<T>& a, unsigned char* memory, uint32_t shared,
                             int thread) {
  const StreamShape& shape = a.shape;
  const int tiles = block_tiles(a.op.tiles);
  const Finisher finisher(shape, thread);
  XPlace x(shape, shared);
  SumsPlace place(shape, shared);
  Input<T, kRows> input(a, memory, shared, thread);
  wait_for_previous_kernels();
  float factor = 1.0f;
  for (int tile = 0; tile < tiles; ++tile, place.next()) {
    if (tile == 0 || (!shape.x_stays && tile % shape.together == 0)) {
      input.bring(x, tile == 0);
      if (tile == 0) factor = input.factor(min(finisher.row, a.op.m - 1));
    }
    if (!finisher.has_turn(shape, place)) continue;
    const int w_tile = block_tile(tile);
    switch (a.epilogue) {
      case StreamEpilogue::kLinear:
        finish_tile<T, StreamEpilogue::kLinear>(a.op, place, finisher, w_tile, memory, factor);
        break;
      case StreamEpilogue::kQkv:
        finish_tile<T, StreamEpilogue::kQkv>(a.op, place, finisher, w_tile, memory, factor);
        break;
      case StreamEpilogue::kGateUp:
        finish_tile<T, StreamEpilogue::kGateUp>(a.op, place, finisher, w_tile, memory, factor);
        break;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    stream_kernel(const __grid_constant__ StreamLaunch<T> a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t shared = shared_address(memory);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  allow_next_kernel();
  if (warp < kStreamWarps) {
    Ring<T> ring(a, warp, lane, shared);
    __syncthreads();
    stream_tiles<T>(a, ring, memory, shared, warp, lane);
    return;
  }
  const int thread = static_cast<int>(threadIdx.x) - kStreamWarps * kWarp;
  if (thread == 0) {
    XPlace::init_barriers(a.shape, shared);
    SumsPlace::init_barriers(a.shape, shared);
    publish_barriers();
  }
  __syncthreads();
  if (a.op.m == 1) {
    finish_tiles<T, 1>(a, memory, shared, thread);
  } else {
    finish_tiles<T, int{kMaxNarrowStreamRows}>(a, memory, shared, thread);
  }
}

int num_multiprocessors() {
  int device = 0;
  int count = 0;
  TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
  TRIPTYCH_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace

template <class T>
void launch_stream_sm90a(const StreamOp<T>& op, StreamEpilogue epilogue, LaunchOrder order,
                         cudaStream_t stream) {
  const int blocks = std::min(num_multiprocessors(), op.tiles.count);
  const Result<CUtensorMap> map =
      make_tile_map(op.w, op.n, op.k, op.tiles.second, kStreamUnitColumns / kStreamSwizzleColumns);
  TRIPTYCH_CHECK(map.has_value(), map.error().message);
  const StreamLaunch<T> launch = {
      *map, op, epilogue,
      make_stream_shape(op.m, op.k, stream_shape::ceil_div(op.tiles.count, blocks))};
  constexpr auto kKernel = stream_kernel<T>;
  static SharedLimit limit;
  TRIPTYCH_CUDA_CHECK(
      limit.raise(reinterpret_cast<const void*>(kKernel), int{stream_shape::kMaxShared}));
  TRIPTYCH_CUDA_CHECK(launch_kernel(kKernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                                    static_cast<size_t>(launch.shape.shared_bytes), stream, order,
                                    1, launch));
}

template void launch_stream_sm90a(const StreamOp<__half>&, StreamEpilogue, LaunchOrder,
                                  cudaStream_t);
template void launch_stream_sm90a(const StreamOp<__nv_bfloat16>&, StreamEpilogue, LaunchOrder,
                                  cudaStream_t);

}  // namespace triptych
