// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// RMS norm, f16 or bf16 in and out, sums in f32. One block a row: the row stays in registers
// between the sum of squares and the scaling, so x is read once.
#include "kernels/rms_norm.h"

#include <initializer_list>

#include "base/check.h"
#include "base/strings.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/vector8.cuh"

namespace triptych {
namespace {

// Per thread: 2 x 4 x 4 registers for x and weight. A block of a row of 4096 has
// then 128 threads, and an SM holds enough of them that some load while others wait at the barrier
// or write; with one vector a thread and blocks of 512 most of the SM is in the same phase.
constexpr int kMaxVectors = 4;
constexpr int64_t kMaxHiddenSize = int64_t{kMaxBlockThreads} * kMaxVectors * kVectorWidth;
// Blocks along x.
constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;

// Thread t owns the vectors t, t + blockDim.x, ... of its row; neighbours in a warp so read
// neighbouring 16 bytes. No pointer is restrict-qualified: y may be x.
template <class T, int kVectors, int kMaxThreads>
__global__ void __launch_bounds__(kMaxThreads) rms_norm_kernel(RmsNormArgs<T> args) {
  const int64_t row_vectors = args.hidden_size / kVectorWidth;
  const int64_t row = blockIdx.x * row_vectors;
  Vector8<T> values[kVectors];
  Vector8<T> weights[kVectors];
  allow_next_kernel();
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t i = threadIdx.x + int64_t{v} * blockDim.x;
    if (i < row_vectors) weights[v] = load_shared_by_blocks(args.weight, i);
  }
  wait_for_previous_kernels();
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t i = threadIdx.x + int64_t{v} * blockDim.x;
    if (i < row_vectors) values[v] = load_once(args.x, row + i);
  }
  if (args.residual != nullptr) {
    Vector8<T> old[kVectors];  // all in flight before the first store, which may alias later loads
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = threadIdx.x + int64_t{v} * blockDim.x;
      if (i < row_vectors) old[v] = load_once(args.residual, row + i);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = threadIdx.x + int64_t{v} * blockDim.x;
      if (i >= row_vectors) continue;
      for (int p = 0; p < kVectorWidth / 2; ++p) {
        // The sum is rounded to T, as it is stored: a fused and an unfused runtime agree.
        values[v].set_pair(p, __hadd2(old[v].pair(p), values[v].pair(p)));
      }
      store(args.residual, row + i, values[v]);
    }
  }
  float squares = 0.0f;  // vectors beyond the row are zero
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    for (int p = 0; p < kVectorWidth / 2; ++p) {
      const float2 f = values[v].get(p);
      squares = fmaf(f.x, f.x, fmaf(f.y, f.y, squares));
    }
  }
  const float mean = block_sum_once(squares) / static_cast<float>(args.hidden_size);
  const float scale = rsqrtf(mean + args.eps);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t i = threadIdx.x + int64_t{v} * blockDim.x;
    if (i >= row_vectors) continue;
    for (int p = 0; p < kVectorWidth / 2; ++p) {
      const float2 f = values[v].get(p);
      const float2 w = weights[v].get(p);
      values[v].set(p, f.x * scale * w.x, f.y * scale * w.y);
    }
    store(args.y, row + i, values[v]);
  }
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(uint4) == 0;
}

}  // namespace

template <class T>
Status rms_norm_supports(const RmsNormArgs<T>& args) {
  if (args.num_tokens < 0 || args.num_tokens > kMaxGrid) {
    return fail(ErrorCode::kUnsupported,
                str_format("rms_norm: num_tokens %lld is outside [0, 2^31)",
                           static_cast<long long>(args.num_tokens)));
  }
  if (args.hidden_size <= 0 || args.hidden_size % kVectorWidth != 0 ||
      args.hidden_size > kMaxHiddenSize) {
    return fail(ErrorCode::kUnsupported,
                str_format("rms_norm: hidden_size %lld is not a multiple of %d up to %lld",
                           static_cast<long long>(args.hidden_size), kVectorWidth,
                           static_cast<long long>(kMaxHiddenSize)));
  }
  for (const void* pointer : {static_cast<const void*>(args.x), static_cast<const void*>(args.y),
                              static_cast<const void*>(args.weight)}) {
    if (pointer == nullptr || !is_aligned(pointer)) {
      return fail(ErrorCode::kUnsupported,
                  "rms_norm: x, y and weight must be set and aligned to 16 bytes");
    }
  }
  if (!is_aligned(args.residual)) {
    return fail(ErrorCode::kUnsupported, "rms_norm: residual is not aligned to 16 bytes");
  }
  return {};
}

template <class T>
void launch_rms_norm(const RmsNormArgs<T>& args, cudaStream_t stream, LaunchOrder order) {
  const Status supported = rms_norm_supports(args);
  TRIPTYCH_CHECK(supported.has_value(), supported.error().message);
  if (args.num_tokens == 0) return;
  const int64_t threads = (args.hidden_size / kVectorWidth + kMaxVectors - 1) / kMaxVectors;
  const int64_t whole_warps = (threads + kWarpSize - 1) / kWarpSize * kWarpSize;
  constexpr int kFewThreads = 512;  // leaves twice the registers to a thread
  const auto kernel = whole_warps <= kFewThreads
                          ? rms_norm_kernel<T, kMaxVectors, kFewThreads>
                          : rms_norm_kernel<T, kMaxVectors, kMaxBlockThreads>;
  TRIPTYCH_CUDA_CHECK(launch_kernel(kernel, dim3(static_cast<unsigned>(args.num_tokens)),
                                    dim3(static_cast<unsigned>(whole_warps)), 0, stream, order, 1,
                                    args));
}

template Status rms_norm_supports(const RmsNormArgs<__half>&);
template Status rms_norm_supports(const RmsNormArgs<__nv_bfloat16>&);
template void launch_rms_norm(const RmsNormArgs<__half>&, cudaStream_t, LaunchOrder);
template void launch_rms_norm(const RmsNormArgs<__nv_bfloat16>&, cudaStream_t, LaunchOrder);

}  // namespace triptych
