// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Decode attention on sm_90. The copy engine brings the tiles, 16 tokens that lie back to back. The
// splits of a sequence and KV head are
// the blocks of a cluster; each block sends its sums to the shared memory of the block that merges
// them, so that one barrier of the cluster is all that a merge costs.
#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/proxy_fence.cuh"
#include "kernels/cuda/decode_attention.cuh"
#include "kernels/cuda/row_map.h"
#include "kernels/cuda/shared_limit.h"

namespace triptych {
namespace {

using decode::kThreads;
using decode::kWarps;
using decode::Params;
using decode::Softmax;

template <int kDim, int kHeads, int kStages>
struct ClusterLayout : decode::Layout<kDim, kHeads, kStages> {
  using Base = decode::Layout<kDim, kHeads, kStages>;
  static constexpr int kBlockSumsAt = Base::kBytes;  // float2 [splits][kHeads]
  static constexpr int kReceivedAt = kBlockSumsAt + kMaxDecodeSplits * kHeads * 8;
  // float4 [splits][ceil(group * dim / 4 / splits)]
  static constexpr int kReceivedBytes = kHeads * kDim * 4 + kMaxDecodeSplits * 16;
  static constexpr int kBytes = kReceivedAt + kReceivedBytes;
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

  __device__ void start(int i) const {
    if (i < tiles_.count()) bring(i, tiles_.newest());
  }
  __device__ void finish(int i) const {
    if (!tiles_.is_plain(i)) tiles_.copy(i, stage(i), tiles_.newest(), INT32_MAX);
  }
  __device__ void refill(int i) const {
    if (i >= tiles_.count()) return;
    if (i == kStages && !tiles_.is_plain(0)) order_before_bulk_copies();
    bring(i, INT32_MAX);
  }
  __device__ uint32_t wait(int i) const {
    if (!tiles_.is_plain(i)) wait_for_all_copies();
    wait_for_barrier(barrier(i), static_cast<uint32_t>(i / kStages) % 2);
    __syncwarp();
    return stage(i);
  }

 private:
  using L = decode::Layout<kDim, kHeads, kStages>;
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ uint32_t stage(int i) const {
    return memory_ + i % kStages * L::kStageBytes;
  }
  [[nodiscard]] __device__ uint32_t barrier(int i) const { return barriers_ + i % kStages * 8; }

  // Lane 0 asks for the keys of a plain tile, lane 1 for the values. Of other tiles, the tokens
  // before `to`, and the barrier has nothing to wait for.
  __device__ void bring(int i, int to) const {
    const bool plain = tiles_.is_plain(i);
    const int row = tiles_.row(i, 0);
    if (lane() == 0) arrive_and_expect(barrier(i), plain ? L::kStageBytes : 0);
    __syncwarp();
    if (!plain) {
      tiles_.copy(i, stage(i), 0, to);
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

// Sends the sums of this block to those that merge them: each block merges a share of the vectors
// of four numbers, and needs the softmax of all heads for that.
template <class L, int kDim, int kHeads>
__device__ void send_sums(unsigned char* shared, int group, int share) {
  const int rank = static_cast<int>(blockIdx.x);
  const int splits = static_cast<int>(gridDim.x);
  const auto* warp_sums = reinterpret_cast<const float2*>(shared + L::kWarpSumsAt);
  auto* block_sums = reinterpret_cast<float2*>(shared + L::kBlockSumsAt);
  auto* received = reinterpret_cast<float4*>(shared + L::kReceivedAt);
  constexpr int kHeadVectors = kDim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < group * kHeadVectors; i += kThreads) {
    const int head = i / kHeadVectors;
    const auto* values = reinterpret_cast<const float4*>(
        reinterpret_cast<const float*>(shared) + head * L::kPartialStride + i % kHeadVectors * 4);
    Softmax whole;
    const float4 value = decode::merge_parts<kWarps>(
        kWarps, warp_sums + head, kHeads, values, L::kWarpBytes / 16, decode::PlainLoad{}, whole);
    const int owner = i / share;
    const float4* place = received + rank * share + i - owner * share;
    store_to_rank(shared_address_of_rank(shared_address(place), owner), value);
  }
  for (int i = static_cast<int>(threadIdx.x); i < group * splits; i += kThreads) {
    const int head = i % group;
    Softmax whole;
    decode::merge_parts<kWarps>(kWarps, warp_sums + head, kHeads, nullptr, 0, decode::PlainLoad{},
                                whole);
    const float2* place = block_sums + rank * kHeads + head;
    store_to_rank(shared_address_of_rank(shared_address(place), i / group),
                  make_float2(whole.max, whole.sum));
  }
}

// Merges the share of this block, or all where there is one block.
template <class L, int kDim, int kHeads, class T>
__device__ void merge_sums(const unsigned char* shared, int group, int share, T* out) {
  const int rank = static_cast<int>(blockIdx.x);
  const int splits = static_cast<int>(gridDim.x);
  constexpr int kHeadVectors = kDim / 4;
  const int vectors = group * kHeadVectors;
  for (int i = static_cast<int>(threadIdx.x); i < share && rank * share + i < vectors;
       i += kThreads) {
    const int vector = rank * share + i;
    const int head = vector / kHeadVectors;
    Softmax whole;
    float4 value;
    if (splits == 1) {
      const auto* sums = reinterpret_cast<const float2*>(shared + L::kWarpSumsAt) + head;
      const auto* values = reinterpret_cast<const float4*>(
          reinterpret_cast<const float*>(shared) + head * L::kPartialStride + i % kHeadVectors * 4);
      value = decode::merge_parts<kWarps>(kWarps, sums, kHeads, values, L::kWarpBytes / 16,
                                          decode::PlainLoad{}, whole);
    } else {
      const auto* sums = reinterpret_cast<const float2*>(shared + L::kBlockSumsAt) + head;
      const auto* values = reinterpret_cast<const float4*>(shared + L::kReceivedAt) + i;
      value = decode::merge_parts<kMaxDecodeSplits>(splits, sums, kHeads, values, share,
                                                    decode::PlainLoad{}, whole);
    }
    decode::store_result(out + vector * 4, value, whole.sum);
  }
}

template <class T, int kDim, int kHeads, int kStages>
__global__ void __launch_bounds__(kThreads)
    decode_attention_cluster(const Params<T> p, const __grid_constant__ CUtensorMap key_map,
                             const __grid_constant__ CUtensorMap value_map) {
  using L = ClusterLayout<kDim, kHeads, kStages>;
  extern __shared__ __align__(1024) unsigned char shared[];
  announce_to_cluster();
  allow_next_kernel();
  const int splits = static_cast<int>(gridDim.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int sequence = static_cast<int>(blockIdx.z);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int length = p.args.kv_lengths[sequence];
  const int64_t head0 = int64_t{kv_head} * p.group;
  {
    decode::Tiles<T, kDim> tiles(p, sequence, kv_head, length,
                                 static_cast<int>(blockIdx.x) * kWarps + warp, splits * kWarps);
    unsigned char* memory = shared + warp * L::kWarpBytes;
    Ring<T, kDim, kHeads, kStages> ring(
        tiles, shared_address(memory), shared_address(shared + L::kBarriersAt + warp * kStages * 8),
        &key_map, &value_map);
    decode::WarpState<T, kDim, kHeads> state;
    const T* q = p.args.q + sequence * p.args.q_stride + head0 * kDim;
    decode::attend<T, kDim, kHeads, kStages>(p, tiles, ring, q, state);
    auto* warp_sums = reinterpret_cast<float2*>(shared + L::kWarpSumsAt);
    state.store(reinterpret_cast<float*>(memory), L::kPartialStride, warp_sums + warp * kHeads,
                p.group);
  }
  wait_for_cluster();  // all blocks run: their shared memory may be written
  __syncthreads();
  T* out = p.args.out + (sequence * p.args.num_q_heads + head0) * kDim;
  const int share = (p.group * kDim / 4 + splits - 1) / splits;
  if (splits > 1) {
    send_sums<L, kDim, kHeads>(shared, p.group, share);
    __syncwarp();
    arrive_at_cluster();
    wait_for_cluster();
  }
  merge_sums<L, kDim, kHeads>(shared, p.group, share, out);
}

template <class T, int kDim, int kHeads, int kStages>
cudaError_t launch(const Params<T>& p, int splits, cudaStream_t stream) {
  constexpr int kBytes = ClusterLayout<kDim, kHeads, kStages>::kBytes;
  static SharedLimit limit;
  const auto kernel = decode_attention_cluster<T, kDim, kHeads, kStages>;
  cudaError_t status = limit.raise(reinterpret_cast<const void*>(kernel), kBytes, true);
  CUtensorMap maps[2];
  if (status == cudaSuccess) status = make_row_map(p.args.kv.k, kDim, decode::kTile, maps[0]);
  if (status == cudaSuccess) status = make_row_map(p.args.kv.v, kDim, decode::kTile, maps[1]);
  if (status != cudaSuccess) return status;
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(p.args.kv.num_kv_heads),
                  static_cast<unsigned>(p.args.num_sequences));
  return launch_kernel(kernel, grid, dim3(kThreads), kBytes, stream, p.args.order,
                       static_cast<unsigned>(splits), p, maps[0], maps[1]);
}

// plan.stages counts tiles of 8 KiB, those of a head_dim of 128.
template <class T, int kDim, int kHeads>
cudaError_t launch(const Params<T>& p, const DecodePlan& plan, cudaStream_t stream) {
  constexpr auto stages = [](int of_128) { return (of_128 * 128 + kDim - 1) / kDim; };
  if (plan.stages >= 6) return launch<T, kDim, kHeads, stages(6)>(p, plan.splits, stream);
  if (plan.stages >= 3) return launch<T, kDim, kHeads, stages(3)>(p, plan.splits, stream);
  if (plan.stages == 2) return launch<T, kDim, kHeads, stages(2)>(p, plan.splits, stream);
  return launch<T, kDim, kHeads, stages(1)>(p, plan.splits, stream);
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
  constexpr int kBytes = ClusterLayout<128, 16, 2>::kBytes;
  const auto kernel = decode_attention_cluster<__half, 128, 16, 2>;
  static SharedLimit limit;
  if (limit.raise(reinterpret_cast<const void*>(kernel), kBytes, true) != cudaSuccess) {
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
