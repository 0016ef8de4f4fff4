// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Greedy sampling: the largest logit of each row. Several blocks read a row; the largest meets in
// one 64-bit maximum, and the block that arrives last writes the token.
#include <algorithm>

#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/order_key.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/vector8.cuh"
#include "kernels/cuda/launch_shape.h"
#include "kernels/cuda/sample_rows.cuh"

namespace triptych {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // a thread, all in flight together
constexpr int kBlockVectors = kThreads * kVectors;
// Blocks for all rows together, above which more would only add starts and meetings: five fit on a
// multiprocessor at once, and large devices have some 130 of these.
constexpr int64_t kEnoughBlocks = 640;

// Key above, inverted index below: the larger key wins, then the lower index. 0: no number.
using Packed = unsigned long long;
__device__ Packed pack(uint32_t key, int index) {
  return key == kNanKey ? 0 : (Packed{key} << 32) | (0xFFFFFFFFu - static_cast<uint32_t>(index));
}

// __hmax2 gives the number where one operand is NaN.
template <class T>
__device__ float largest_of(const Vector8<T>& vector) {
  const auto max =
      __hmax2(__hmax2(vector.pair(0), vector.pair(1)), __hmax2(vector.pair(2), vector.pair(3)));
  const float2 both = PairType<T>::to_float(max);
  return fmaxf(both.x, both.y);
}

template <class T>
__device__ Packed pack_first(const Vector8<T>& vector, float value, int first_index) {
  Packed best = 0;
#pragma unroll
  for (int i = kVectorWidth - 1; i >= 0; --i) {
    const uint32_t bits = (vector.words[i / 2] >> (16 * (i % 2))) & 0xFFFF;
    const uint32_t key = order_key<T>(bits);
    if (key != kNanKey && value_of_key<T>(key) == value) best = pack(key, first_index + i);
  }
  return best;
}

__device__ Packed block_max(Packed value) {
  __shared__ Packed partial[kThreads / kWarpSize];
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(kWholeWarp, value, offset));
  }
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = partial[0];
#pragma unroll
  for (int w = 1; w < kThreads / kWarpSize; ++w) value = max(value, partial[w]);
  return value;
}

// Of one row, in the workspace.
struct RowState {
  Packed best;
  unsigned long long arrived;
};

template <class T>
__global__ void __launch_bounds__(kThreads) argmax_kernel(SampleArgs<T> args) {
  allow_next_kernel();
  wait_for_previous_kernels();
  const int64_t row = blockIdx.y;
  const LogitRow<T> logits(args.logits + row * args.vocab_size, args.vocab_size);
  float value = nanf("");
  Vector8<T> holder;  // what has `value`, the first such vector of this thread
  int place = 0;
  const int vectors = static_cast<int>((args.vocab_size + kVectorWidth - 1) / kVectorWidth);
  for (int first = blockIdx.x * kBlockVectors + threadIdx.x; first < vectors;
       first += gridDim.x * kBlockVectors) {
    Vector8<T> loaded[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) loaded[v] = logits.load(first + v * kThreads);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float other = largest_of(loaded[v]);
      if (other > value || isnan(value)) {
        value = other;
        holder = loaded[v];
        place = first + v * kThreads;
      }
    }
  }
  const Packed best = block_max(pack_first(holder, value, place * kVectorWidth));
  if (threadIdx.x != 0) return;
  auto& state = static_cast<RowState*>(args.workspace)[row];
  Packed all = best;
  if (gridDim.x > 1) {
    atomicMax(&state.best, best);
    __threadfence();
    if (atomicAdd(&state.arrived, 1ULL) != gridDim.x - 1) return;
    __threadfence();
    all = atomicExch(&state.best, 0ULL);
    state.arrived = 0;
  }
  const auto token = all == 0 ? 0 : static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(all));
  write_token(args, row, token);
}

}  // namespace

int64_t sample_workspace_bytes(int64_t max_rows, int64_t) {
  return max_rows * static_cast<int64_t>(sizeof(RowState));
}

template <class T>
void launch_argmax(const SampleArgs<T>& args, cudaStream_t stream) {
  const int64_t most = ceil_div(ceil_div(args.vocab_size, kVectorWidth), kBlockVectors);
  const int64_t blocks = std::clamp<int64_t>(kEnoughBlocks / args.rows, 1, most);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(args.rows));
  TRIPTYCH_CUDA_CHECK(
      launch_kernel(argmax_kernel<T>, grid, dim3(kThreads), 0, stream, args.order, 1, args));
}

template void launch_argmax(const SampleArgs<__half>&, cudaStream_t);
template void launch_argmax(const SampleArgs<__nv_bfloat16>&, cudaStream_t);

}  // namespace triptych
