// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Streaming linear layers of up to 32 rows on sm_90. A warp of each block brings w and x through
// the copy engine into a ring; warpgroups multiply, up to 64 rows of w each, w from the left: then
// few rows of x are few columns. The tiles are as high as it takes to give all blocks the same
// share. The blocks of a cluster share a tile, each a part of k. They exchange their sums through
// shared memory, so that each adds up and finishes some rows of x. The ring is filled with w before
// the kernel waits for the one before it, and goes on to fill while sums are exchanged.
#include <array>
#include <atomic>

#include "base/check.h"
#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/proxy_fence.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/common/wgmma_streamed.cuh"
#include "kernels/cuda/shared_limit.h"
#include "kernels/cuda/stream_epilogue.cuh"
#include "kernels/cuda/stream_maps.h"
#include "kernels/cuda/stream_wide.h"
#include "kernels/cuda/stream_wide_shape.h"

namespace triptych {
namespace {

constexpr int kWarp = 32;

template <class T>
struct WideLaunch {
  CUtensorMap w;
  CUtensorMap x;
  StreamOp<T> op;
  StreamEpilogue epilogue;
  WideShape shape;
};

// What the threads of a block know of their place.
struct WidePlace {
  int rank;
  int cluster;  // takes the tiles cluster, cluster + clusters, ...
  int tiles;
  int first_stage;
  int stages;  // of each tile

  __device__ explicit WidePlace(const WideShape& shape)
      : rank(static_cast<int>(blockIdx.x) % shape.ranks),
        cluster(static_cast<int>(blockIdx.x) / shape.ranks),
        tiles((shape.tiles.count - cluster + shape.clusters - 1) / shape.clusters),
        first_stage(min(rank * shape.stages_per_rank, shape.stages)),
        stages(min(first_stage + shape.stages_per_rank, shape.stages) - first_stage) {}
};

// The ring: stages of w and x, in the order in which they are multiplied.
struct WideRing {
  const WideShape& shape;
  uint32_t shared;
  int stage = 0;
  uint32_t parity = 0;

  __device__ WideRing(const WideShape& wide_shape, uint32_t shared_memory)
      : shape(wide_shape), shared(shared_memory) {}
  __device__ uint32_t weights(int i) const { return shared + i * shape.stage_bytes; }
  __device__ uint32_t x(int i) const { return weights(i) + shape.weight_bytes; }
  __device__ uint32_t full(int i) const { return shared + shape.barriers + i * 8; }
  __device__ uint32_t empty(int i) const { return full(kMaxWideStages + i); }
  __device__ void advance() {
    if (++stage == shape.ring_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// One thread that fills the ring.
template <class T>
class WideProducer {
 public:
  __device__ WideProducer(const WideLaunch<T>& launch, const WidePlace& place, uint32_t shared)
      : launch_(launch),
        place_(place),
        ring_(launch.shape, shared),
        policy_(evict_first_policy()),
        total_(place.tiles * place.stages),
        ahead_(min(total_, launch.shape.ring_stages)) {}

  /// Everything that needs nothing of the kernel before.
  __device__ void begin() {
    prefetch_map(&launch_.w);
    prefetch_map(&launch_.x);
    for (int i = 0; i < launch_.shape.ring_stages; ++i) {
      init_barrier(ring_.full(i), 1);
      init_barrier(ring_.empty(i), kWideMultiplyThreads / kWarp);
    }
    publish_barriers();
    for (int i = 0; i < ahead_; ++i) {
      bring_w(i);
      next();
    }
  }
  __device__ void run() {
    for (int i = 0; i < ahead_; ++i) bring_x(i, i % place_.stages);
    for (int i = ahead_; i < total_; ++i) {
      wait_for_barrier(ring_.empty(ring_.stage), ring_.parity);
      bring_w(ring_.stage);
      bring_x(ring_.stage, step_);
      ring_.advance();
      next();
    }
  }

 private:
  __device__ void bring_w(int stage) const {
    const WideShape& shape = launch_.shape;
    const uint32_t full = ring_.full(stage);
    arrive_and_expect(full, static_cast<uint32_t>(shape.stage_bytes));
    const int row = stream_tile_row(shape.tiles, place_.cluster + tile_ * shape.clusters);
    const int piece = (place_.first_stage + step_) * shape.pieces;
#pragma unroll
    for (int g = 0; g < kWideGroups; ++g) {
      copy_box(ring_.weights(stage) + g * (shape.weight_bytes / kWideGroups), &launch_.w, 0,
               row + g * shape.tiles.second, piece, full, policy_);
    }
  }
  __device__ void bring_x(int stage, int step) const {
    copy_box(ring_.x(stage), &launch_.x, 0, 0, (place_.first_stage + step) * launch_.shape.pieces,
             ring_.full(stage));
  }
  __device__ void next() {
    if (++step_ == place_.stages) {
      step_ = 0;
      ++tile_;
    }
  }

  const WideLaunch<T>& launch_;
  const WidePlace& place_;
  WideRing ring_;
  uint64_t policy_;
  int total_;     // stages of all tiles
  int ahead_;     // those that fill the empty ring
  int tile_ = 0;  // of the cluster's, counted
  int step_ = 0;  // of the tile's stages
};

// acc += this rank's part of the tile.  acc: rows of w by rows of x. Where a box has fewer than 64
// rows, what follows it in shared memory makes sums that nobody reads.
template <class T, int kPieces>
__device__ void multiply_stages(float (&acc)[kWideRows / 8][4], WideRing& ring, int stages,
                                int group, int lane) {
  const WideShape& shape = ring.shape;
  const uint32_t group_bytes = group * (shape.weight_bytes / kWideGroups);
  int last = 0;
  for (int i = 0; i < stages; ++i) {
    const uint32_t w = ring.weights(ring.stage) + group_bytes;
    const uint32_t x = ring.x(ring.stage);
    wait_for_barrier(ring.full(ring.stage), ring.parity);
    begin_products();
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        add_products<T>(acc, describe_operand(w + piece * shape.box_rows * 128 + c * 32, 0),
                        describe_operand(x + piece * kWideRows * 128 + c * 32, 0));
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

// The number of pieces is known to the compiler: products of a stage run back to back.
template <class T>
__device__ void multiply_tile(float (&acc)[kWideRows / 8][4], WideRing& ring, int stages, int group,
                              int lane) {
  if (ring.shape.pieces == 4) {
    multiply_stages<T, 4>(acc, ring, stages, group, lane);
  } else if (ring.shape.pieces == 2) {
    multiply_stages<T, 2>(acc, ring, stages, group, lane);
  } else {
    multiply_stages<T, 1>(acc, ring, stages, group, lane);
  }
}

// How the ranks exchange sums of a tile: each finishes the same number of rows of x. Sums are
// [kWideRows, sum_stride] f32; a rank receives its rows of all others.
template <class T>
class WideExchange {
 public:
  __device__ WideExchange(const WideLaunch<T>& launch, const WidePlace& place,
                          unsigned char* memory, uint32_t shared)
      : op_(launch.op),
        epilogue_(launch.epilogue),
        shape_(launch.shape),
        rows_((launch.op.m + launch.shape.ranks - 1) / launch.shape.ranks),
        rank_(place.rank),
        uses_(place.tiles),
        sums_(reinterpret_cast<float*>(memory + launch.shape.sums)),
        received_(reinterpret_cast<const float*>(memory + launch.shape.received)),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % kWarp) {}

  __device__ static void init(const WideShape& shape, uint32_t shared) {
    init_barrier(full(shape, shared), 1);
    init_barrier(free(shape, shared), static_cast<uint32_t>(max(shape.ranks - 1, 1)));
    publish_barriers();
  }

  __device__ void run(const float (&acc)[kWideRows / 8][4], int tile) {
    keep(acc);
    if (shape_.ranks > 1) order_before_bulk_copies();
    synchronize();
    if (shape_.ranks > 1 && thread_ == 0) send();
    // As in the narrow kernel, a layer's products are one kernel, whose instructions stay cached.
    switch (epilogue_) {
      case StreamEpilogue::kLinear:
        finish<StreamEpilogue::kLinear>(tile);
        break;
      case StreamEpilogue::kQkv:
        finish<StreamEpilogue::kQkv>(tile);
        break;
      case StreamEpilogue::kGateUp:
        finish<StreamEpilogue::kGateUp>(tile);
        break;
    }
    if (shape_.ranks > 1 && thread_ == 0) wait_until_read();
    synchronize();
    ++use_;
    if (shape_.ranks > 1 && thread_ == 0 && use_ < uses_) tell_others();
  }

 private:
  static constexpr int kTogether = 2;  // pairs whose operands are loaded early

  __device__ static uint32_t full(const WideShape& shape, uint32_t shared) {
    return shared + shape.barriers + 2 * kMaxWideStages * 8;
  }
  __device__ static uint32_t free(const WideShape& shape, uint32_t shared) {
    return full(shape, shared) + 8;
  }
  // Of the threads that multiply.
  __device__ static void synchronize() {
    __syncwarp();
    asm volatile("bar.sync 1, %0;" ::"n"(kWideMultiplyThreads) : "memory");
  }
  // Rows that exist of those which a rank finishes.
  __device__ int rows_of(int rank) const { return max(min(rows_, op_.m - rank * rows_), 0); }

  __device__ void keep(const float (&acc)[kWideRows / 8][4]) const {
    const int row = thread_ / kWarp % 4 * 16 + lane_ / 4;  // of the box
    float* to = sums_ + thread_ / 128 * shape_.box_rows + row;
#pragma unroll
    for (int j = 0; j < kWideRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = (j * 8 + lane_ % 4 * 2 + i % 2) * shape_.sum_stride;
        if (row + i / 2 * 8 < shape_.box_rows) {
          to[column + i / 2 * 8] = acc[j][i];
        }
      }
    }
  }
  __device__ void send() const {
    if (use_ > 0) wait_for_cluster_barrier(free(shape_, shared_), (use_ - 1) & 1);
    const int row_bytes = shape_.sum_stride * 4;
    const uint32_t barrier = full(shape_, shared_);
    arrive_and_expect(barrier,
                      static_cast<uint32_t>((shape_.ranks - 1) * rows_of(rank_) * row_bytes));
    for (int i = 1; i < shape_.ranks; ++i) {
      const int to = (rank_ + i) % shape_.ranks;
      const int bytes = rows_of(to) * row_bytes;
      if (bytes == 0) continue;
      const uint32_t place = shared_ + shape_.received + rank_ * rows_ * row_bytes;
      copy_bulk_to_rank(shared_address_of_rank(place, static_cast<unsigned>(to)),
                        shared_ + shape_.sums + to * rows_ * row_bytes,
                        static_cast<uint32_t>(bytes),
                        shared_address_of_rank(barrier, static_cast<unsigned>(to)));
    }
    commit_bulk_copies();
  }
  // What this rank received may be overwritten.
  __device__ void tell_others() const {
    for (int i = 1; i < shape_.ranks; ++i) {
      const auto to = static_cast<unsigned>((rank_ + i) % shape_.ranks);
      arrive_at_remote_barrier(shared_address_of_rank(free(shape_, shared_), to));
    }
  }
  template <StreamEpilogue kEpilogue>
  __device__ void finish(int tile) const {
    const int pairs = shape_.sum_stride / 2 - 2;  // of a tile
    const int items = rows_of(rank_) * pairs;
    const int first_row = rank_ * rows_;
    bool waited = shape_.ranks == 1;
    for (int first = thread_; first < items || !waited; first += kTogether * kWideMultiplyThreads) {
      StreamPair<T, kEpilogue> out[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int item = first + i * kWideMultiplyThreads;
        const int row = item / pairs;
        if (exists<kEpilogue>(tile, item, items, item - row * pairs)) {
          out[i].prepare(op_, tile, item - row * pairs, first_row + row);
        }
      }
      if (!waited) {
        wait_for_cluster_barrier(full(shape_, shared_), use_ & 1);
        waited = true;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int item = first + i * kWideMultiplyThreads;
        const int row = item / pairs;
        if (exists<kEpilogue>(tile, item, items, item - row * pairs)) {
          out[i].finish(add_up(row, item - row * pairs, pairs));
        }
      }
    }
  }
  // Linear layers and gate and up look at their columns themselves.
  template <StreamEpilogue kEpilogue>
  __device__ bool exists(int tile, int item, int items, int pair) const {
    if (item >= items) return false;
    if (kEpilogue != StreamEpilogue::kQkv || op_.tiles.split) return true;
    return stream_tile_row(op_.tiles, tile) + 2 * pair < op_.n;
  }
  // Of all ranks, in their order.
  __device__ float2 add_up(int row, int pair, int pairs) const {
    const int first = op_.tiles.split ? pair : 2 * pair;
    const int second = op_.tiles.split ? pair + pairs : first + 1;
    float2 sum = make_float2(0.0f, 0.0f);
    for (int r = 0; r < shape_.ranks; ++r) {
      const float* from = (r == rank_ ? sums_ : received_) + (r * rows_ + row) * shape_.sum_stride;
      sum.x += from[first];
      sum.y += from[second];
    }
    return sum;
  }

  const StreamOp<T>& op_;
  StreamEpilogue epilogue_;
  const WideShape& shape_;
  int rows_;  // that a rank finishes
  int rank_;
  int uses_;  // tiles
  float* sums_;
  const float* received_;
  uint32_t shared_;
  int thread_;
  int lane_;
  int use_ = 0;
};

template <class T>
__global__ void __launch_bounds__(kWideThreads, 1)
    stream_wide_kernel(const __grid_constant__ WideLaunch<T> a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t shared = shared_address(memory);
  const WidePlace place(a.shape);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool produces = threadIdx.x == kWideMultiplyThreads;
  allow_next_kernel();
  WideProducer<T> producer(a, place, shared);
  if (produces) producer.begin();
  if (threadIdx.x == 0) WideExchange<T>::init(a.shape, shared);
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
  wait_for_previous_kernels();
  if (warp == kWideMultiplyThreads / kWarp) {
    if (produces) producer.run();
    return;
  }
  WideRing ring(a.shape, shared);
  WideExchange<T> exchange(a, place, memory, shared);
  for (int t = 0; t < place.tiles; ++t) {
    float acc[kWideRows / 8][4] = {};
    multiply_tile<T>(acc, ring, place.stages, warp / 4, lane);
    exchange.run(acc, place.cluster + t * a.shape.clusters);
  }
}

// How many clusters run at the same time; found once for each device.
class ClusterCounts {
 public:
  template <class Kernel>
  void get(Kernel kernel, int threads, int (&counts)[kWideRankChoices]) {
    int device = 0;
    TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
    for (int i = 0; i < kWideRankChoices; ++i) {
      std::atomic<int>& known = known_[static_cast<size_t>(device) % known_.size()][i];
      counts[i] = known.load(std::memory_order_relaxed);
      if (counts[i] != 0) continue;
      cudaLaunchAttribute attribute = {};
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {1u << i, 1, 1};
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(1u << i);
      config.blockDim = dim3(static_cast<unsigned>(threads));
      config.dynamicSmemBytes = size_t{wide_shape::kMaxShared};
      config.attrs = &attribute;
      config.numAttrs = 1;
      TRIPTYCH_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&counts[i], kernel, &config));
      known.store(counts[i], std::memory_order_relaxed);
    }
  }

 private:
  std::array<std::array<std::atomic<int>, kWideRankChoices>, 16> known_ = {};
};

template <class T>
CUtensorMap map_of(const T* data, int64_t rows, int64_t k, int box_rows, int pieces) {
  const Result<CUtensorMap> map = make_matrix_map(data, rows, k, box_rows, pieces);
  TRIPTYCH_CHECK(map.has_value(), map.error().message);
  return *map;
}

}  // namespace

template <class T>
void launch_stream_wide_sm90a(const StreamOp<T>& op, StreamEpilogue epilogue, LaunchOrder order,
                              cudaStream_t stream) {
  constexpr auto kKernel = stream_wide_kernel<T>;
  static SharedLimit limit;
  static ClusterCounts counts;
  TRIPTYCH_CUDA_CHECK(limit.raise(reinterpret_cast<const void*>(kKernel), wide_shape::kMaxShared));
  int clusters[kWideRankChoices];
  counts.get(kKernel, kWideThreads, clusters);

  WideLaunch<T> a;
  const int64_t half = epilogue == StreamEpilogue::kGateUp ? op.n / 2 : op.kv.head_dim / 2;
  a.shape = make_wide_shape({op.n, op.k, op.tiles.split, half}, clusters);
  TRIPTYCH_CHECK(a.shape.ranks > 0, "head_dim is a multiple of 16");
  a.op = op;
  a.epilogue = epilogue;
  a.op.tiles = a.shape.tiles;
  a.w = map_of(op.w, op.n, op.k, a.shape.box_rows, a.shape.pieces);
  a.x = map_of(op.x, op.m, op.k, kWideRows, a.shape.pieces);
  const auto blocks = static_cast<unsigned>(a.shape.clusters * a.shape.ranks);
  TRIPTYCH_CUDA_CHECK(launch_kernel(kKernel, dim3(blocks), dim3(kWideThreads),
                                    static_cast<size_t>(a.shape.shared_bytes), stream, order,
                                    static_cast<unsigned>(a.shape.ranks), a));
}

template void launch_stream_wide_sm90a(const StreamOp<__half>&, StreamEpilogue, LaunchOrder,
                                       cudaStream_t);
template void launch_stream_wide_sm90a(const StreamOp<__nv_bfloat16>&, StreamEpilogue, LaunchOrder,
                                       cudaStream_t);

}  // namespace triptych
