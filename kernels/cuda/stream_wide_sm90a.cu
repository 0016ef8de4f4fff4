// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Streaming linear layers of up to 128 rows on sm_90. A warp of each block brings w and x through
// the copy engine into a ring; warpgroups multiply, 64 rows of w each, the tile of w from the left:
// then few rows of x are few columns. The blocks of a cluster share a tile, each a part of k. They
// exchange their sums through shared memory, so that each adds up and finishes some rows of x. The
// ring is filled with w before the kernel waits for the one before it, and goes on to fill while
// sums are exchanged.
#include <array>
#include <atomic>

#include "base/check.h"
#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/common/wgmma_streamed.cuh"
#include "kernels/cuda/shared_limit.h"
#include "kernels/cuda/stream_epilogue.cuh"
#include "kernels/cuda/stream_maps.h"
#include "kernels/cuda/stream_wide_shape.h"

namespace triptych {
namespace {

constexpr int kWarp = 32;

template <class T>
struct WideLaunch {
  CUtensorMap w;
  CUtensorMap x;
  StreamOp<T> op;
  WideSplit split;
  int32_t tile_step;    // rows of w from one tile to the next
  int32_t second_half;  // rows of w from the first half of a tile to the second
};

// What the threads of a block know of their place.
struct WidePlace {
  int rank;
  int cluster;  // takes the tiles cluster, cluster + clusters, ...
  int tiles;
  int first_stage;
  int stages;  // of each tile

  __device__ explicit WidePlace(const WideSplit& split)
      : rank(static_cast<int>(blockIdx.x) % split.ranks),
        cluster(static_cast<int>(blockIdx.x) / split.ranks),
        tiles((split.tiles - cluster + split.clusters - 1) / split.clusters),
        first_stage(min(rank * split.stages_per_rank, split.stages)),
        stages(min(first_stage + split.stages_per_rank, split.stages) - first_stage) {}
};

// The ring: stages of w and x, in the order in which they are multiplied.
template <int kRows>
struct WideRing {
  using C = WideConfig<kRows>;
  uint32_t shared;
  int stage = 0;
  uint32_t parity = 0;

  __device__ explicit WideRing(uint32_t shared_memory) : shared(shared_memory) {}
  __device__ uint32_t data(int i) const { return shared + i * C::kStageBytes; }
  __device__ uint32_t full(int i) const { return shared + C::kBarriersAt + i * 8; }
  __device__ uint32_t empty(int i) const { return full(C::kStages + i); }
  __device__ void advance() {
    if (++stage == C::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// One thread that fills the ring.
template <class T, int kRows>
class WideProducer {
 public:
  using C = WideConfig<kRows>;

  __device__ WideProducer(const WideLaunch<T>& launch, const WidePlace& place, uint32_t shared)
      : launch_(launch),
        place_(place),
        ring_(shared),
        policy_(evict_first_policy()),
        total_(place.tiles * place.stages) {}

  /// Everything that needs nothing of the kernel before.
  __device__ void begin() {
    prefetch_map(&launch_.w);
    prefetch_map(&launch_.x);
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(ring_.full(i), 1);
      init_barrier(ring_.empty(i), C::kMultiplyThreads / kWarp);
    }
    publish_barriers();
    for (int i = 0; i < min(total_, C::kStages); ++i) {
      bring_w(i);
      next();
    }
  }
  __device__ void run() {
    const int ahead = min(total_, C::kStages);
    for (int i = 0; i < ahead; ++i) bring_x(i, i % place_.stages);
    for (int i = ahead; i < total_; ++i) {
      wait_for_barrier(ring_.empty(ring_.stage), ring_.parity);
      bring_w(ring_.stage);
      bring_x(ring_.stage, step_);
      ring_.advance();
      next();
    }
  }

 private:
  __device__ void bring_w(int stage) const {
    const uint32_t full = ring_.full(stage);
    arrive_and_expect(full, C::kStageBytes);
    const int row = (place_.cluster + tile_ * launch_.split.clusters) * launch_.tile_step;
    const int piece = (place_.first_stage + step_) * C::kPieces;
#pragma unroll
    for (int g = 0; g < C::kGroups; ++g) {
      const int within =
          g % (C::kGroups / 2) * kWideBlockRows + (g < C::kGroups / 2 ? 0 : launch_.second_half);
      copy_box(ring_.data(stage) + g * C::kPieces * C::kPieceBytes, &launch_.w, 0, row + within,
               piece, full, policy_);
    }
  }
  __device__ void bring_x(int stage, int step) const {
    copy_box(ring_.data(stage) + C::kStageWeightBytes, &launch_.x, 0, 0,
             (place_.first_stage + step) * C::kPieces, ring_.full(stage));
  }
  __device__ void next() {
    if (++step_ == place_.stages) {
      step_ = 0;
      ++tile_;
    }
  }

  const WideLaunch<T>& launch_;
  const WidePlace& place_;
  WideRing<kRows> ring_;
  uint64_t policy_;
  int total_;
  int tile_ = 0;  // of the cluster's, counted
  int step_ = 0;  // of the tile's stages
};

// acc += this rank's part of the tile.  acc: rows of w by rows of x.
template <class T, int kRows>
__device__ void multiply_stages(float (&acc)[kRows / 8][4], WideRing<kRows>& ring, int stages,
                                int group, int lane) {
  using C = WideConfig<kRows>;
  int last = 0;
  for (int i = 0; i < stages; ++i) {
    const uint32_t w = ring.data(ring.stage) + group * C::kPieces * C::kPieceBytes;
    const uint32_t x = ring.data(ring.stage) + C::kStageWeightBytes;
    wait_for_barrier(ring.full(ring.stage), ring.parity);
    begin_products();
#pragma unroll
    for (int piece = 0; piece < C::kPieces; ++piece) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        add_products<T, kRows / 8>(acc, describe_operand(w + piece * C::kPieceBytes + c * 32, 0),
                                   describe_operand(x + piece * kRows * 128 + c * 32, 0));
      }
    }
    commit_products();
    if (i > 0) {
      wait_for_products_before();
      if (lane == 0) arrive_at_barrier(ring.empty(last));
    }
    last = ring.stage;
    ring.advance();
  }
  wait_for_products();
  pin(acc);
  if (stages > 0 && lane == 0) arrive_at_barrier(ring.empty(last));
}

// Rows of w whose sums make a pair.
struct WidePair {
  int first, second;  // in the tile
  int tile, pair;     // as StreamPair counts them
  bool exists;
};
template <StreamEpilogue kEpilogue, int kTileRows, class T>
__device__ WidePair find_pair(const StreamOp<T>& op, int tile, int pair) {
  if constexpr (kEpilogue == StreamEpilogue::kLinear) {
    return {2 * pair, 2 * pair + 1, tile, pair, true};
  } else if constexpr (kEpilogue == StreamEpilogue::kGateUp) {
    return {pair, pair + kTileRows / 2, tile, pair, true};
  } else {
    const int head_dim = static_cast<int>(op.kv.head_dim);
    const int head = pair / (head_dim / 2);
    const int d = pair - head * (head_dim / 2);
    const bool split = stream_pairs_are_split(op.tiles);
    const int first = head * head_dim + (split ? d : 2 * d);
    return {first, first + (split ? head_dim / 2 : 1), tile * (kTileRows / head_dim) + head, d,
            tile * kTileRows + first < op.n};
  }
}

// How the ranks exchange sums: pass after pass of kPassRows rows of x, of which each rank finishes
// the same number. A buffer is [ranks, rows, kSumStride] f32.
template <class T, StreamEpilogue kEpilogue, int kRows>
class WideExchange {
 public:
  using C = WideConfig<kRows>;

  __device__ WideExchange(const WideLaunch<T>& launch, const WidePlace& place,
                          const unsigned char* memory, uint32_t shared)
      : op_(launch.op),
        ranks_(launch.split.ranks),
        rows_(C::kPassRows / launch.split.ranks),
        rank_(place.rank),
        passes_(place.tiles * ((launch.op.m - 1) / C::kPassRows + 1)),
        memory_(memory),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % kWarp) {}

  __device__ static void init(uint32_t shared, int ranks) {
    for (int i = 0; i < C::kBuffers; ++i) {
      const auto arrivals = static_cast<uint32_t>(ranks * C::kMultiplyThreads / kWarp);
      init_barrier(full(shared, i), arrivals);
      init_barrier(empty(shared, i), arrivals);
    }
    publish_barriers();
  }

  __device__ void run(const float (&acc)[kRows / 8][4], int tile) {
#pragma unroll
    for (int pass = 0; pass < C::kPasses; ++pass) {
      if (pass * C::kPassRows >= op_.m) break;
      send(acc, pass, pass_ + pass);
      if (pass > 0) finish(tile, pass - 1, pass_ + pass - 1);
    }
    const int last = (op_.m - 1) / C::kPassRows;
    finish(tile, last, pass_ + last);
    pass_ += last + 1;
  }

 private:
  static constexpr int kTilePairs = C::kTileRows / 2;
  static constexpr int kTogether = 2;  // pairs of a thread whose operands are loaded early

  __device__ static uint32_t full(uint32_t shared, int buffer) {
    return shared + C::kBarriersAt + (2 * C::kStages + buffer) * 8;
  }
  __device__ static uint32_t empty(uint32_t shared, int buffer) {
    return full(shared, C::kBuffers + buffer);
  }

  // `use` counts the passes of all tiles.
  __device__ void send(const float (&acc)[kRows / 8][4], int pass, int use) const {
    const int buffer = use % C::kBuffers;
    if (use >= C::kBuffers) {
      wait_for_cluster_barrier(empty(shared_, buffer), (use / C::kBuffers - 1) & 1);
    }
    const uint32_t sums = shared_ + C::kBuffersAt + buffer * C::kBufferBytes;
    const int w_row = thread_ / kWarp * 16 + lane_ / 4;
#pragma unroll
    for (int j = 0; j < C::kPassRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = j * 8 + lane_ % 4 * 2 + i;
        if (pass * C::kPassRows + row >= op_.m) continue;
        const int owner = row / rows_;
        const int at = (rank_ * rows_ + row - owner * rows_) * C::kSumStride + w_row;
        const uint32_t to = shared_address_of_rank(sums + at * 4, static_cast<unsigned>(owner));
        const float(&values)[4] = acc[pass * (C::kPassRows / 8) + j];
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(values[i]) : "memory");
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to + 32), "f"(values[i + 2])
                     : "memory");
      }
    }
    __syncwarp();
    arrive_everywhere(full(shared_, buffer));
  }
  __device__ void finish(int tile, int pass, int use) const {
    const int buffer = use % C::kBuffers;
    const int first_row = pass * C::kPassRows + rank_ * rows_;
    const int items = max(min(rows_, op_.m - first_row), 0) * kTilePairs;
    bool waited = false;
    for (int first = thread_; first < items || !waited; first += kTogether * C::kMultiplyThreads) {
      StreamPair<T, kEpilogue> out[kTogether];
      WidePair pairs[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int item = first + i * C::kMultiplyThreads;
        pairs[i] = find_pair<kEpilogue, C::kTileRows>(op_, tile, item % kTilePairs);
        pairs[i].exists = pairs[i].exists && item < items;
        if (pairs[i].exists) {
          out[i].prepare(op_, pairs[i].tile, pairs[i].pair, first_row + item / kTilePairs);
        }
      }
      if (!waited) {
        wait_for_cluster_barrier(full(shared_, buffer), use / C::kBuffers & 1);
        waited = true;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int item = first + i * C::kMultiplyThreads;
        if (pairs[i].exists) out[i].finish(add_up(buffer, item / kTilePairs, pairs[i]));
      }
    }
    __syncwarp();
    // Blocks that will not write into the buffer again may have ended: they are not told.
    if (use + C::kBuffers < passes_) arrive_everywhere(empty(shared_, buffer));
  }
  // Of all ranks, in their order.
  __device__ float2 add_up(int buffer, int row, const WidePair& pair) const {
    const float* sums =
        reinterpret_cast<const float*>(memory_ + C::kBuffersAt + buffer * C::kBufferBytes) +
        row * C::kSumStride;
    float2 sum = make_float2(0.0f, 0.0f);
    for (int r = 0; r < ranks_; ++r) {
      sum.x += sums[r * rows_ * C::kSumStride + pair.first];
      sum.y += sums[r * rows_ * C::kSumStride + pair.second];
    }
    return sum;
  }
  __device__ void arrive_everywhere(uint32_t barrier) const {
    if (lane_ < ranks_) {
      arrive_at_remote_barrier(shared_address_of_rank(barrier, static_cast<unsigned>(lane_)));
    }
  }

  const StreamOp<T>& op_;
  int ranks_;
  int rows_;  // of a pass that a rank finishes
  int rank_;
  int passes_;
  const unsigned char* memory_;
  uint32_t shared_;
  int thread_;
  int lane_;
  int pass_ = 0;
};

template <class T, StreamEpilogue kEpilogue, int kRows>
__global__ void __launch_bounds__(WideConfig<kRows>::kThreads, 1)
    stream_wide_kernel(const __grid_constant__ WideLaunch<T> a) {
  using C = WideConfig<kRows>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t shared = shared_address(memory);
  const WidePlace place(a.split);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool produces = threadIdx.x == C::kMultiplyThreads;
  allow_next_kernel();
  WideProducer<T, kRows> producer(a, place, shared);
  if (produces) producer.begin();
  if (threadIdx.x == 0) WideExchange<T, kEpilogue, kRows>::init(shared, a.split.ranks);
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
  wait_for_previous_kernels();
  if (warp == C::kMultiplyThreads / kWarp) {
    if (produces) producer.run();
    return;
  }
  WideRing<kRows> ring(shared);
  WideExchange<T, kEpilogue, kRows> exchange(a, place, memory, shared);
  for (int t = 0; t < place.tiles; ++t) {
    float acc[kRows / 8][4] = {};
    multiply_stages<T, kRows>(acc, ring, place.stages, warp / 4, lane);
    exchange.run(acc, place.cluster + t * a.split.clusters);
  }
}

// How many clusters run at the same time; found once for each device.
class ClusterCounts {
 public:
  template <class Kernel>
  void get(Kernel kernel, int threads, int shared_bytes, int (&counts)[4]) {
    int device = 0;
    TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
    for (int i = 0; i < 4; ++i) {
      std::atomic<int>& known = known_[static_cast<size_t>(device) % known_.size()][i];
      counts[i] = known.load(std::memory_order_relaxed);
      if (counts[i] != 0) continue;
      cudaLaunchAttribute attribute = {};
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {1u << i, 1, 1};
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(1u << i);
      config.blockDim = dim3(static_cast<unsigned>(threads));
      config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
      config.attrs = &attribute;
      config.numAttrs = 1;
      TRIPTYCH_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&counts[i], kernel, &config));
      known.store(counts[i], std::memory_order_relaxed);
    }
  }

 private:
  std::array<std::array<std::atomic<int>, 4>, 16> known_ = {};
};

template <class T>
CUtensorMap map_of(const T* data, int64_t rows, int64_t k, int box_rows, int pieces) {
  const Result<CUtensorMap> map = make_matrix_map(data, rows, k, box_rows, pieces);
  TRIPTYCH_CHECK(map.has_value(), map.error().message);
  return *map;
}

template <class T, StreamEpilogue kEpilogue, int kRows>
void launch(const StreamOp<T>& op, LaunchOrder order, cudaStream_t stream) {
  using C = WideConfig<kRows>;
  constexpr auto kKernel = stream_wide_kernel<T, kEpilogue, kRows>;
  static SharedLimit limit;
  static ClusterCounts counts;
  TRIPTYCH_CUDA_CHECK(limit.raise(reinterpret_cast<const void*>(kKernel), C::kSharedBytes));
  int clusters[4];
  counts.get(kKernel, C::kThreads, C::kSharedBytes, clusters);

  WideLaunch<T> a;
  a.op = op;
  const bool halves = kEpilogue == StreamEpilogue::kGateUp;
  a.tile_step = halves ? C::kTileRows / 2 : C::kTileRows;
  a.second_half = halves ? op.n / 2 : C::kTileRows / 2;
  const int64_t rows = halves ? op.n / 2 : op.n;
  const int64_t columns = int64_t{C::kPieces} * kStreamSwizzleColumns;
  a.split = choose_wide_split((rows + a.tile_step - 1) / a.tile_step,
                              (op.k + columns - 1) / columns, clusters);
  a.w = map_of(op.w, op.n, op.k, kWideBlockRows, C::kPieces);
  a.x = map_of(op.x, op.m, op.k, kRows, C::kPieces);
  if (kEpilogue == StreamEpilogue::kLinear) {
    a.op.tiles = {a.split.tiles, 1, C::kTileRows, kStreamTileRows, 1};
  } else if (kEpilogue == StreamEpilogue::kGateUp) {
    a.op.tiles = {a.split.tiles, 1, C::kTileRows / 2, kStreamTileRows / 2, op.n / 2};
  } else {
    const auto head_dim = static_cast<int32_t>(op.kv.head_dim);
    const bool split = op.tiles.step != kStreamTileRows;
    a.op.tiles = {op.n / head_dim, 1, head_dim, op.tiles.step, split ? head_dim / 2 : 1};
  }
  const auto blocks = static_cast<unsigned>(a.split.clusters * a.split.ranks);
  TRIPTYCH_CUDA_CHECK(launch_kernel(kKernel, dim3(blocks), dim3(C::kThreads),
                                    static_cast<size_t>(C::kSharedBytes), stream, order,
                                    static_cast<unsigned>(a.split.ranks), a));
}

template <class T, StreamEpilogue kEpilogue>
void launch_for_rows(const StreamOp<T>& op, LaunchOrder order, cudaStream_t stream) {
  if (op.m <= 8) return launch<T, kEpilogue, 8>(op, order, stream);
  if (op.m <= 16) return launch<T, kEpilogue, 16>(op, order, stream);
  if (op.m <= 32) return launch<T, kEpilogue, 32>(op, order, stream);
  if (op.m <= 64) return launch<T, kEpilogue, 64>(op, order, stream);
  launch<T, kEpilogue, 128>(op, order, stream);
}

}  // namespace

template <class T>
void launch_stream_wide_sm90a(const StreamOp<T>& op, StreamEpilogue epilogue, LaunchOrder order,
                              cudaStream_t stream) {
  switch (epilogue) {
    case StreamEpilogue::kLinear:
      return launch_for_rows<T, StreamEpilogue::kLinear>(op, order, stream);
    case StreamEpilogue::kQkv:
      return launch_for_rows<T, StreamEpilogue::kQkv>(op, order, stream);
    case StreamEpilogue::kGateUp:
      return launch_for_rows<T, StreamEpilogue::kGateUp>(op, order, stream);
  }
}

template void launch_stream_wide_sm90a(const StreamOp<__half>&, StreamEpilogue, LaunchOrder,
                                       cudaStream_t);
template void launch_stream_wide_sm90a(const StreamOp<__nv_bfloat16>&, StreamEpilogue, LaunchOrder,
                                       cudaStream_t);

}  // namespace triptych
