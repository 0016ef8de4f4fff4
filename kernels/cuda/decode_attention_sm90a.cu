// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Decode attention on sm_90: the splits of a sequence and KV head are the blocks of a cluster. Each
// block sends its sums to the shared memory of the block that merges them, so that one barrier of
// the cluster is all that a merge costs.
#include "kernels/common/cluster.cuh"
#include "kernels/cuda/decode_attention.cuh"
#include "kernels/cuda/shared_limit.h"

namespace triptych {
namespace {

using decode::kThreads;
using decode::kWarps;
using decode::Params;
using decode::Softmax;

template <class T, int kDim, int kRows, int kStages>
__global__ void __launch_bounds__(kThreads, decode::kMinBlocks<kDim>)
    decode_attention_cluster(const Params<T> p) {
  using L = decode::Layout<kDim, kRows, kStages>;
  extern __shared__ __align__(128) unsigned char shared[];
  announce_to_cluster();
  allow_next_kernel();
  const int rank = static_cast<int>(blockIdx.x);
  const int splits = static_cast<int>(gridDim.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int sequence = static_cast<int>(blockIdx.z);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int length = p.args.kv_lengths[sequence];
  const int64_t head0 = int64_t{kv_head} * p.group;

  auto* warp_sums = reinterpret_cast<float2*>(shared + L::kWarpSumsAt);
  unsigned char* ring = shared + warp * L::kWarpRegion;
  {
    decode::TileStream<T, kDim> stream(p, sequence, kv_head, length, rank * kWarps + warp,
                                       splits * kWarps);
    decode::WarpState<T, kDim, kRows> state;
    const T* q = p.args.q + sequence * p.args.q_stride + head0 * p.dim;
    decode::attend<T, kDim, kRows, kStages>(p, stream, q, ring, state);
    state.store(reinterpret_cast<float*>(ring), L::kPartialStride, warp_sums + warp * kRows,
                p.group);
  }
  wait_for_cluster();  // all blocks run: their shared memory may be written
  __syncthreads();

  T* out = p.args.out + (sequence * p.args.num_q_heads + head0) * p.dim;
  auto* block_sums = reinterpret_cast<float2*>(shared + L::kBlockSumsAt);
  auto* received = reinterpret_cast<float4*>(shared + L::kReceivedAt);
  const int row_vectors = p.dim / 4;
  const int vectors = p.group * row_vectors;
  const int share = (vectors + splits - 1) / splits;  // vectors that a block merges
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
    const int row = i / row_vectors;
    const int column = i % row_vectors * 4;
    const auto* values = reinterpret_cast<const float4*>(reinterpret_cast<const float*>(shared) +
                                                         row * L::kPartialStride + column);
    Softmax whole;
    const float4 value = decode::merge_parts<kWarps>(
        kWarps, warp_sums + row, kRows, values, L::kWarpRegion / 16, decode::PlainLoad{}, whole);
    if (splits == 1) {
      decode::store_result(out + row * p.dim + column, value, whole.sum);
    } else {
      const int owner = i / share;
      store_to_rank(shared_address_of_rank(
                        shared_address(received + rank * share + i - owner * share), owner),
                    value);
    }
  }
  if (splits == 1) return;
  for (int i = static_cast<int>(threadIdx.x); i < p.group * splits; i += kThreads) {
    const int row = i % p.group;
    Softmax whole;
    decode::merge_parts<kWarps>(kWarps, warp_sums + row, kRows, nullptr, 0, decode::PlainLoad{},
                                whole);
    store_to_rank(
        shared_address_of_rank(shared_address(block_sums + rank * kRows + row), i / p.group),
        make_float2(whole.max, whole.sum));
  }
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
  for (int i = static_cast<int>(threadIdx.x); i < share && rank * share + i < vectors;
       i += kThreads) {
    const int vector = rank * share + i;
    Softmax whole;
    const float4 value =
        decode::merge_parts<kMaxDecodeSplits>(splits, block_sums + vector / row_vectors, kRows,
                                              received + i, share, decode::PlainLoad{}, whole);
    decode::store_result(out + vector * 4, value, whole.sum);
  }
}

template <class T, int kDim, int kRows, int kStages>
cudaError_t launch(const Params<T>& p, int splits, cudaStream_t stream) {
  constexpr int kBytes = decode::Layout<kDim, kRows, kStages>::kClusterBytes;
  static SharedLimit limit;
  const auto kernel = decode_attention_cluster<T, kDim, kRows, kStages>;
  const cudaError_t status = limit.raise(reinterpret_cast<const void*>(kernel), kBytes, true);
  if (status != cudaSuccess) return status;
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(p.args.kv.num_kv_heads),
                  static_cast<unsigned>(p.args.num_sequences));
  return launch_kernel(kernel, grid, dim3(kThreads), kBytes, stream, p.args.order,
                       static_cast<unsigned>(splits), p);
}

template <class T, int kDim, int kRows>
cudaError_t launch(const Params<T>& p, const DecodePlan& plan, cudaStream_t stream) {
  if constexpr (kDim <= 128) {
    if (plan.stages >= 4) return launch<T, kDim, kRows, 4>(p, plan.splits, stream);
    if (plan.stages == 2) return launch<T, kDim, kRows, 2>(p, plan.splits, stream);
  }
  return launch<T, kDim, kRows, 1>(p, plan.splits, stream);
}

}  // namespace

template <class T>
cudaError_t launch_decode_attention_sm90a(const AttentionArgs<T>& args, const DecodePlan& plan,
                                          cudaStream_t stream) {
  return decode::with_shape(args, [&]<int kDim, int kRows>(const Params<T>& p) {
    return launch<T, kDim, kRows>(p, plan, stream);
  });
}
template cudaError_t launch_decode_attention_sm90a(const AttentionArgs<__half>&, const DecodePlan&,
                                                   cudaStream_t);
template cudaError_t launch_decode_attention_sm90a(const AttentionArgs<__nv_bfloat16>&,
                                                   const DecodePlan&, cudaStream_t);

int max_decode_cluster() {
  constexpr int kBytes = decode::Layout<128, 16, 2>::kClusterBytes;
  const auto kernel = decode_attention_cluster<__half, 128, 16, 2>;
  static SharedLimit limit;
  if (limit.raise(reinterpret_cast<const void*>(kernel), kBytes, true) != cudaSuccess) return 8;
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
  return status == cudaSuccess && clusters > 0 ? kMaxDecodeSplits : 8;
}

}  // namespace triptych
