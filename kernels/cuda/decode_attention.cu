// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Decode attention on any device from sm_80 on. Splits of a sequence and KV head write their sums
// to the workspace; the block that arrives last merges them in the order of the splits.
#include "kernels/cuda/decode_attention.cuh"
#include "kernels/cuda/shared_limit.h"

namespace triptych {
namespace {

using decode::kThreads;
using decode::kWarps;
using decode::Params;
using decode::Softmax;

// At a head_dim of 256 two would not fit the 99 KiB of shared memory of sm_86 and sm_89.
template <int kDim>
inline constexpr int kStages = kDim <= 128 ? 2 : 1;

// The workspace: arrivals of each pair of sequence and KV head, softmax of each block and head,
// sums of each block. Arrivals come first and have a fixed place, so that they are zero for each
// launch.
struct Workspace {
  unsigned* arrivals;
  float2* sums;    // [blocks][kMaxHeads], a line of 128 bytes each
  float4* values;  // [blocks][group * dim / 4]
};
constexpr int kMaxHeads = 16;

__device__ Workspace workspace_at(void* memory) {
  auto* arrivals = static_cast<unsigned*>(memory);
  auto* sums = reinterpret_cast<float2*>(arrivals + kMaxSplitPairs);
  return {arrivals, sums, reinterpret_cast<float4*>(sums + kMaxSplitBlocks * kMaxHeads)};
}

// True in all threads of the block that arrives last, which then sees what the others wrote.
__device__ bool is_last_to_arrive(unsigned* arrivals, int splits) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrivals, 1u) == static_cast<unsigned>(splits) - 1;
    if (last) *arrivals = 0;  // for the next launch
  }
  __syncthreads();
  __threadfence();
  return last;
}

// The ring of one warp: each tile is a group of copies.
template <class T, int kDim, int kHeads>
class Ring {
 public:
  __device__ Ring(const decode::Tiles<T, kDim>& tiles, uint32_t memory)
      : tiles_(tiles), memory_(memory) {}

  __device__ void start() const {
#pragma unroll
    for (int i = 0; i < kStages<kDim>; ++i) bring(i, tiles_.newest());
  }
  __device__ void refill(int i, bool old) const { bring(i, old ? tiles_.newest() : -1); }
  __device__ uint32_t wait(int i) const {
    if (i == tiles_.count() - 1) {
      wait_for_all_copies();
    } else {
      wait_for_copies<kStages<kDim> - 1>();
    }
    __syncwarp();
    return stage(i);
  }

  [[nodiscard]] __device__ uint32_t stage(int i) const {
    return memory_ + i % kStages<kDim> * L::kStageBytes;
  }

 private:
  using L = decode::Layout<kDim, kHeads, kStages<kDim>>;
  // A tile is a group of copies. With at most two stages, a tile that is waited for and is not the
  // last has kStages - 1 newer ones under way.
  static_assert(kStages<kDim> <= 2);
  __device__ void bring(int i, int except) const {
    if (i >= tiles_.count()) return;
    if (tiles_.is_plain(i)) {
      tiles_.copy_plain(i, stage(i));
    } else {
      tiles_.copy(i, stage(i), except);
    }
    commit_copies();
  }

  const decode::Tiles<T, kDim>& tiles_;
  uint32_t memory_;
};

template <class T, int kDim, int kHeads>
__global__ void __launch_bounds__(kThreads) decode_attention_split(const Params<T> p) {
  using L = decode::Layout<kDim, kHeads, kStages<kDim>>;
  extern __shared__ __align__(128) unsigned char shared[];
  allow_next_kernel();
  const int splits = static_cast<int>(gridDim.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int sequence = static_cast<int>(blockIdx.z);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int length = p.args.kv_lengths[sequence];
  const int64_t head0 = int64_t{kv_head} * p.group;
  auto* warp_sums = reinterpret_cast<float2*>(shared + L::kWarpSumsAt);
  {
    decode::Tiles<T, kDim> tiles(p, sequence, kv_head, length,
                                 static_cast<int>(blockIdx.x) * kWarps + warp, splits * kWarps);
    unsigned char* memory = shared + warp * L::kWarpBytes;
    Ring<T, kDim, kHeads> ring(tiles, shared_address(memory));
    decode::WarpState<T, kDim, kHeads, false> state;
    const T* q = p.args.q + sequence * p.args.q_stride + head0 * p.dim;
    decode::attend<T, kDim, kHeads, kStages<kDim>>(
        p, tiles, ring, q, shared_address(shared + L::kQueriesAt), state, [] {});
    __syncwarp();  // all lanes have read the last tile, over which the sums go
    state.store(reinterpret_cast<float*>(memory), L::kPartialStride, warp_sums + warp * kHeads,
                p.group);
  }
  __syncthreads();

  T* out = p.args.out + (sequence * p.args.num_q_heads + head0) * p.dim;
  const int pair = sequence * static_cast<int>(gridDim.y) + kv_head;
  const int block = pair * splits + static_cast<int>(blockIdx.x);
  const Workspace workspace = workspace_at(p.args.workspace);
  const int head_vectors = p.dim / 4;
  const int vectors = p.group * head_vectors;
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
    const int head = i / head_vectors;
    const int column = i % head_vectors * 4;
    const auto* values = reinterpret_cast<const float4*>(reinterpret_cast<const float*>(shared) +
                                                         head * L::kPartialStride + column);
    Softmax whole;
    const float4 value = decode::merge_parts<kWarps>(
        kWarps, warp_sums + head, kHeads, values, L::kWarpBytes / 16, decode::PlainLoad{}, whole);
    if (splits == 1) {
      decode::store_result(out + i * 4, value, whole.sum);
      continue;
    }
    workspace.values[int64_t{block} * vectors + i] = value;
    if (column == 0) workspace.sums[block * kMaxHeads + head] = make_float2(whole.max, whole.sum);
  }
  if (splits == 1 || !is_last_to_arrive(workspace.arrivals + pair, splits)) return;
  const int block0 = pair * splits;
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
    Softmax whole;
    const float4 value = decode::merge_parts<kMaxDecodeSplits>(
        splits, workspace.sums + block0 * kMaxHeads + i / head_vectors, kMaxHeads,
        workspace.values + int64_t{block0} * vectors + i, vectors, decode::PastL1Load{}, whole);
    decode::store_result(out + i * 4, value, whole.sum);
  }
}

template <class T, int kDim, int kHeads>
cudaError_t launch(const Params<T>& p, int splits, cudaStream_t stream) {
  constexpr int kBytes = decode::Layout<kDim, kHeads, kStages<kDim>>::kBytes;
  static SharedLimit limit;
  const auto kernel = decode_attention_split<T, kDim, kHeads>;
  const cudaError_t status = limit.raise(reinterpret_cast<const void*>(kernel), kBytes);
  if (status != cudaSuccess) return status;
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(p.args.kv.num_kv_heads),
                  static_cast<unsigned>(p.args.num_sequences));
  return launch_kernel(kernel, grid, dim3(kThreads), kBytes, stream, p.args.order, 1, p);
}

}  // namespace

template <class T>
cudaError_t launch_decode_attention_general(const AttentionArgs<T>& args, const DecodePlan& plan,
                                            cudaStream_t stream) {
  return decode::with_shape(args, [&]<int kDim, int kHeads>(const Params<T>& p) {
    return launch<T, kDim, kHeads>(p, plan.splits, stream);
  });
}
template cudaError_t launch_decode_attention_general(const AttentionArgs<__half>&,
                                                     const DecodePlan&, cudaStream_t);
template cudaError_t launch_decode_attention_general(const AttentionArgs<__nv_bfloat16>&,
                                                     const DecodePlan&, cudaStream_t);

}  // namespace triptych
