// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// RMS norm, f16 in and out, sums in f32. One block a row: the row stays in registers between the
// sum of squares and the scaling, so x is read once.
#include <algorithm>
#include <initializer_list>

#include "base/strings.h"
#include "kernels/common/cuda_check.h"
#include "kernels/rms_norm.h"

namespace triptych {
namespace {

constexpr int kWarpSize = 32;
constexpr int kMaxThreads = 1024;
constexpr int kVectorWidth = 8;  // halves in one 16-byte load, the widest there is
constexpr int kMaxVectors = 4;   // per thread; 2 x 4 x 4 registers for x and weight, without spills
constexpr int64_t kMaxHiddenSize = int64_t{kMaxThreads} * kMaxVectors * kVectorWidth;
constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;

union Vector {
  uint4 raw;
  __half2 pairs[kVectorWidth / 2];
};

__device__ float warp_sum(float value) {
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  }
  return value;
}

// Every thread gets the sum. blockDim.x is a multiple of kWarpSize.
__device__ float block_sum(float value) {
  __shared__ float partial[kMaxThreads / kWarpSize];
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarpSize;
  return warp_sum(lane < blockDim.x / kWarpSize ? partial[lane] : 0.0f);
}

// Thread t owns the vectors t, t + blockDim.x, ... of its row; neighbours in a warp so read
// neighbouring 16 bytes. No pointer is restrict-qualified: y may be x.
template <int kVectors>
__global__ void __launch_bounds__(kMaxThreads) rms_norm_f16(RmsNormArgs<__half> args) {
  const int64_t row_vectors = args.hidden_size / kVectorWidth;
  const int64_t row = blockIdx.x * row_vectors;
  const auto* x = reinterpret_cast<const uint4*>(args.x) + row;
  const auto* weight = reinterpret_cast<const uint4*>(args.weight);
  auto* residual = args.residual ? reinterpret_cast<uint4*>(args.residual) + row : nullptr;

  Vector values[kVectors];
  Vector weights[kVectors];  // loaded now, so that the latency hides behind the reduction
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t i = threadIdx.x + int64_t{v} * blockDim.x;
    if (i >= row_vectors) continue;
    values[v].raw = x[i];
    weights[v].raw = weight[i];
    Vector old;
    if (residual) old.raw = residual[i];
    for (int p = 0; p < kVectorWidth / 2; ++p) {
      // The sum is rounded to f16, as it is stored: a fused and an unfused runtime agree.
      if (residual) values[v].pairs[p] = __hadd2(old.pairs[p], values[v].pairs[p]);
      const float2 f = __half22float2(values[v].pairs[p]);
      squares = fmaf(f.x, f.x, fmaf(f.y, f.y, squares));
    }
    if (residual) residual[i] = values[v].raw;
  }

  const float mean = block_sum(squares) / static_cast<float>(args.hidden_size);
  const float scale = rsqrtf(mean + args.eps);
  auto* y = reinterpret_cast<uint4*>(args.y) + row;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t i = threadIdx.x + int64_t{v} * blockDim.x;
    if (i >= row_vectors) continue;
    for (int p = 0; p < kVectorWidth / 2; ++p) {
      const float2 f = __half22float2(values[v].pairs[p]);
      const float2 w = __half22float2(weights[v].pairs[p]);
      values[v].pairs[p] = __floats2half2_rn(f.x * scale * w.x, f.y * scale * w.y);
    }
    y[i] = values[v].raw;
  }
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(uint4) == 0;
}

template <int kVectors>
void launch(const RmsNormArgs<__half>& args, int64_t row_vectors, cudaStream_t stream) {
  const int64_t threads = (row_vectors + kVectors - 1) / kVectors;
  const int64_t whole_warps = (threads + kWarpSize - 1) / kWarpSize * kWarpSize;
  rms_norm_f16<kVectors>
      <<<static_cast<unsigned>(args.num_tokens), static_cast<unsigned>(whole_warps), 0, stream>>>(
          args);
}

}  // namespace

Status rms_norm_supports(const RmsNormArgs<__half>& args) {
  if (args.num_tokens < 0 || args.num_tokens > kMaxGrid) {
    return fail(ErrorCode::kUnsupported,
                str_format("rms_norm f16: num_tokens %lld is outside [0, 2^31)",
                           static_cast<long long>(args.num_tokens)));
  }
  if (args.hidden_size <= 0 || args.hidden_size % kVectorWidth != 0 ||
      args.hidden_size > kMaxHiddenSize) {
    return fail(ErrorCode::kUnsupported,
                str_format("rms_norm f16: hidden_size %lld is not a multiple of %d up to %lld",
                           static_cast<long long>(args.hidden_size), kVectorWidth,
                           static_cast<long long>(kMaxHiddenSize)));
  }
  for (const void* pointer : {static_cast<const void*>(args.x), static_cast<const void*>(args.y),
                              static_cast<const void*>(args.weight)}) {
    if (pointer == nullptr || !is_aligned(pointer)) {
      return fail(ErrorCode::kUnsupported,
                  "rms_norm f16: x, y and weight must be set and aligned to 16 bytes");
    }
  }
  if (!is_aligned(args.residual)) {
    return fail(ErrorCode::kUnsupported, "rms_norm f16: residual is not aligned to 16 bytes");
  }
  return {};
}

void launch_rms_norm(const RmsNormArgs<__half>& args, cudaStream_t stream) {
  const Status supported = rms_norm_supports(args);
  TRIPTYCH_CHECK(supported.has_value(), supported.error().message);
  if (args.num_tokens == 0) return;
  // One vector a thread while that fits a block: rows are short work, and more threads a row mean
  // more loads in flight when there are few rows (decode).
  const int64_t row_vectors = args.hidden_size / kVectorWidth;
  if (row_vectors <= kMaxThreads) {
    launch<1>(args, row_vectors, stream);
  } else if (row_vectors <= 2 * kMaxThreads) {
    launch<2>(args, row_vectors, stream);
  } else {
    launch<kMaxVectors>(args, row_vectors, stream);
  }
  TRIPTYCH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace triptych
