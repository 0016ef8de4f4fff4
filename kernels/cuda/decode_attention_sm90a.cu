// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Decode attention on sm_90. The copy engine brings the tiles, 16 tokens that lie back to back. The
// splits of a sequence and KV head are the blocks of a cluster. Each warp sends what it has summed
// right from its registers to the blocks that merge it; a barrier in their shared memory counts the
// bytes, so that nobody waits for more than it needs.
#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/proxy_fence.cuh"
#include "kernels/cuda/decode_attention.cuh"
#include "kernels/cuda/decode_meeting.cuh"
#include "kernels/cuda/row_map.h"
#include "kernels/cuda/shared_limit.h"

namespace triptych {
namespace {

using decode::kThreads;
using decode::kTile;
using decode::kWarps;
using decode::Meeting;
using decode::Params;

constexpr int kMaxBlockShared = 227 << 10;  // of sm_90

// Shared memory of a block: rings, over which the parts meet; then the rest.
template <int kDim, int kHeads, int kStages>
struct ClusterLayout {
  static constexpr int kTileBytes = kTile * kDim * 2;  // of keys or values
  static constexpr int kStageBytes = 2 * kTileBytes;   // keys, then values
  static constexpr int kWarpBytes = kStages * kStageBytes;
  // Of what comes behind the rings.
  static constexpr int kQueriesAt = 0;                            // T [kHeads][kDim], tile_byte
  static constexpr int kSumsAt = kQueriesAt + kHeads * kDim * 2;  // of a single block: Meeting
  static constexpr int kBarriersAt = kSumsAt + kWarps * kHeads / 2 * 16;  // [kWarps][kStages]
  static constexpr int kReceivedAt = kBarriersAt + kWarps * kStages * 8;  // the owner's barrier
  static constexpr int kRestBytes = kReceivedAt + 16;

  static __host__ __device__ int rest_at(const Meeting& meeting) {
    const int rings = kWarps * kWarpBytes;
    return meeting.bytes <= rings ? rings : (meeting.bytes + 127) / 128 * 128;
  }
};

// The ring of one warp. Tiles that are not plain, which have the newest token or end the range, are
// copied by the lanes.
template <class T, int kDim, int kHeads, int kStages>
class Ring {
 public:
  __device__ Ring(const decode::Tiles<T, kDim>& tiles, uint32_t memory, uint32_t barriers,
                  const CUtensorMap* keys, const CUtensorMap* values)
      : tiles_(tiles),
        memory_(memory),
        barriers_(barriers),
        map_(lane() == 0 ? keys : values),
        policy_(evict_first_policy()) {
    if (lane() == 0) {
      for (int i = 0; i < kStages; ++i) init_barrier(barriers_ + 8 * i, 1);
      publish_barriers();
    }
    __syncwarp();
  }

  __device__ void start() const {
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      if (i < tiles_.count()) bring(i, tiles_.newest());
    }
  }
  __device__ void refill(int i, bool old) const {
    if (i == kStages && !tiles_.is_plain(0)) order_before_bulk_copies();
    bring(i, old ? tiles_.newest() : -1);
  }
  __device__ uint32_t wait(int i) const {
    if (!tiles_.is_plain(i)) wait_for_all_copies();
    wait_for_barrier(barrier(i), static_cast<uint32_t>(i / kStages) % 2);
    __syncwarp();
    return stage(i);
  }

  [[nodiscard]] __device__ uint32_t stage(int i) const {
    return memory_ + i % kStages * L::kStageBytes;
  }

 private:
  using L = ClusterLayout<kDim, kHeads, kStages>;
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ uint32_t barrier(int i) const { return barriers_ + i % kStages * 8; }

  // Lane 0 asks for the keys of a plain tile, lane 1 for the values. Of other tiles, the tokens
  // other than `except`, and the barrier has nothing to wait for.
  __device__ void bring(int i, int except) const {
    const bool plain = tiles_.is_plain(i);
    const int row = tiles_.row(i, 0);
    if (lane() == 0) arrive_and_expect(barrier(i), plain ? L::kStageBytes : 0);
    __syncwarp();
    if (!plain) {
      tiles_.copy(i, stage(i), except);
    } else if (lane() < 2) {
      copy_box(stage(i) + lane() * L::kTileBytes, map_, 0, row, 0, barrier(i), policy_);
    }
  }

  const decode::Tiles<T, kDim>& tiles_;
  uint32_t memory_;
  uint32_t barriers_;
  const CUtensorMap* map_;
  uint64_t policy_;
};

// Blocks on an SM for which the compiler saves registers: the more, the better they hide each
// other's starts and ends, unless blocks are so few that only the length of their work counts.
template <int kDim, int kHeads, bool kHolds>
inline constexpr int kMinBlocks = kDim <= 128 && kHeads == 8 && !kHolds ? 4 : 1;

template <class T, int kDim, int kHeads, int kStages, bool kHolds>
__global__ void __launch_bounds__(kThreads, kMinBlocks<kDim, kHeads, kHolds>)
    decode_attention_cluster(const Params<T> p, const __grid_constant__ CUtensorMap key_map,
                             const __grid_constant__ CUtensorMap value_map) {
  using L = ClusterLayout<kDim, kHeads, kStages>;
  extern __shared__ __align__(1024) unsigned char shared[];
  allow_next_kernel();
  const int splits = static_cast<int>(gridDim.x);
  const int rank = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int sequence = static_cast<int>(blockIdx.z);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const Meeting meeting(splits, p.group, kDim / 16, L::kWarpBytes);
  unsigned char* rest = shared + L::rest_at(meeting);
  const uint32_t received = shared_address(rest + L::kReceivedAt);
  if (threadIdx.x == 0) {
    init_barrier(received, 1);
    publish_barriers();
    arrive_and_expect(received, meeting.sent_bytes());
  }
  const int64_t head0 = int64_t{kv_head} * p.group;
  auto* single_sums = reinterpret_cast<float4*>(rest + L::kSumsAt);
  {
    const int length = p.args.kv_lengths[sequence];
    decode::Tiles<T, kDim> tiles(p, sequence, kv_head, length, rank * kWarps + warp,
                                 splits * kWarps);
    unsigned char* memory = shared + warp * L::kWarpBytes;
    Ring<T, kDim, kHeads, kStages> ring(tiles, shared_address(memory),
                                        shared_address(rest + L::kBarriersAt + warp * kStages * 8),
                                        &key_map, &value_map);
    decode::WarpState<T, kDim, kHeads, kHolds> state;
    const T* q = p.args.q + sequence * p.args.q_stride + head0 * kDim;
    decode::attend<T, kDim, kHeads, kStages>(p, tiles, ring, q,
                                             shared_address(rest + L::kQueriesAt), state, [&] {
                                               if (splits > 1) arrive_at_cluster();
                                             });
    if (splits > 1) {
      wait_for_cluster();  // all rings are free: the parts may meet there
      decode::send_part(state, meeting, rank * kWarps + warp, shared_address(shared), received);
    } else {
      decode::keep_part(state, meeting, single_sums + (warp << meeting.pairs_log2),
                        reinterpret_cast<float4*>(memory));
    }
  }
  if (rank >> meeting.owners_log2 != 0) return;
  if (splits > 1) {
    wait_for_cluster_barrier(received, 0);
  } else {
    __syncthreads();
  }
  const auto* sums = splits > 1 ? reinterpret_cast<const float4*>(shared) : single_sums;
  T* out = p.args.out + (sequence * p.args.num_q_heads + head0) * kDim;
  decode::merge_parts<kDim>(meeting, p.group, sums, shared + meeting.values_at, out);
}

template <class T, int kDim, int kHeads, int kStages, bool kHolds>
cudaError_t launch(const Params<T>& p, const DecodePlan& plan, cudaStream_t stream) {
  using L = ClusterLayout<kDim, kHeads, kStages>;
  const Meeting meeting(plan.splits, p.group, kDim / 16, L::kWarpBytes);
  const int bytes = L::rest_at(meeting) + L::kRestBytes;
  static SharedLimit limit;
  const auto kernel = decode_attention_cluster<T, kDim, kHeads, kStages, kHolds>;
  cudaError_t status = limit.raise(reinterpret_cast<const void*>(kernel), kMaxBlockShared, true);
  CUtensorMap maps[2];
  if (status == cudaSuccess) status = make_row_map(p.args.kv.k, kDim, decode::kTile, maps[0]);
  if (status == cudaSuccess) status = make_row_map(p.args.kv.v, kDim, decode::kTile, maps[1]);
  if (status != cudaSuccess) return status;
  const dim3 grid(static_cast<unsigned>(plan.splits), static_cast<unsigned>(p.args.kv.num_kv_heads),
                  static_cast<unsigned>(p.args.num_sequences));
  return launch_kernel(kernel, grid, dim3(kThreads), static_cast<size_t>(bytes), stream,
                       p.args.order, static_cast<unsigned>(plan.splits), p, maps[0], maps[1]);
}

// plan.stages counts tiles of 8 KiB, those of a head_dim of 128.
template <class T, int kDim, int kHeads>
cudaError_t launch(const Params<T>& p, const DecodePlan& plan, cudaStream_t stream) {
  constexpr auto stages = [](int of_128) { return (of_128 * 128 + kDim - 1) / kDim; };
  if constexpr (kDim <= 128) {
    if (plan.holds) return launch<T, kDim, kHeads, stages(1), true>(p, plan, stream);
  }
  if (plan.stages >= 6) return launch<T, kDim, kHeads, stages(6), false>(p, plan, stream);
  if (plan.stages >= 3) return launch<T, kDim, kHeads, stages(3), false>(p, plan, stream);
  if (plan.stages == 2) return launch<T, kDim, kHeads, stages(2), false>(p, plan, stream);
  return launch<T, kDim, kHeads, stages(1), false>(p, plan, stream);
}

}  // namespace

template <class T>
cudaError_t launch_decode_attention_sm90a(const AttentionArgs<T>& args, const DecodePlan& plan,
                                          cudaStream_t stream) {
  return decode::with_shape(args, [&]<int kDim, int kHeads>(const Params<T>& p) {
    return launch<T, kDim, kHeads>(p, plan, stream);
  });
}
template cudaError_t launch_decode_attention_sm90a(const AttentionArgs<__half>&, const DecodePlan&,
                                                   cudaStream_t);
template cudaError_t launch_decode_attention_sm90a(const AttentionArgs<__nv_bfloat16>&,
                                                   const DecodePlan&, cudaStream_t);

int max_decode_cluster() {
  constexpr int kPortable = 8;
  using L = ClusterLayout<128, 16, 2>;
  constexpr int kBytes = kWarps * L::kWarpBytes + L::kRestBytes;
  const auto kernel = decode_attention_cluster<__half, 128, 16, 2, false>;
  static SharedLimit limit;
  if (limit.raise(reinterpret_cast<const void*>(kernel), kMaxBlockShared, true) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // clears it for the next, unrelated check
    return kPortable;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kMaxDecodeSplits);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kBytes;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kMaxDecodeSplits, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  static_cast<void>(cudaGetLastError());
  return status == cudaSuccess && clusters > 0 ? kMaxDecodeSplits : kPortable;
}

}  // namespace triptych
