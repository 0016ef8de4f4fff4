// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sums and the gated activation, 16 bytes of each operand a thread. Pointers are not
// restrict-qualified: y may be an operand.
#include "base/check.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/vector8.cuh"
#include "kernels/cuda/decoder_ops.h"
#include "kernels/cuda/launch_shape.h"

namespace triptych {
namespace {

constexpr unsigned kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_kernel(const T* a, const T* b, T* y, int64_t vectors) {
  allow_next_kernel();
  wait_for_previous_kernels();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  Vector8<T> sum = load_once(a, i);
  const Vector8<T> other = load_once(b, i);
#pragma unroll
  for (int p = 0; p < Vector8<T>::kPairs; ++p) {
    sum.set_pair(p, __hadd2(sum.pair(p), other.pair(p)));
  }
  store(y, i, sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(T* x, const T* bias, int64_t rows, int64_t vectors) {
  allow_next_kernel();
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const bool inside = column < vectors;
  Vector8<T> added;
  if (inside) added = load_shared_by_blocks(bias, column);
  wait_for_previous_kernels();
  if (!inside) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t i = row * vectors + column;
    Vector8<T> sum = load_once(x, i);
#pragma unroll
    for (int p = 0; p < Vector8<T>::kPairs; ++p) {
      sum.set_pair(p, __hadd2(sum.pair(p), added.pair(p)));
    }
    store(x, i, sum);
  }
}

// __expf is within 2 + |1.2 x| units in the last place of f32, and where |x| makes that many the
// result is far below the smallest normal f16; bf16 keeps 8 bits.
__device__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

template <class T>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(SwigluArgs<T> args) {
  allow_next_kernel();
  wait_for_previous_kernels();
  const int64_t vectors = args.columns / kVectorWidth;
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= vectors) return;
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const int64_t in = row * (args.stride / kVectorWidth) + column;
    Vector8<T> y = load_once(args.gate, in);
    const Vector8<T> up = load_once(args.up, in);
#pragma unroll
    for (int p = 0; p < Vector8<T>::kPairs; ++p) {
      const float2 g = y.get(p);
      const float2 u = up.get(p);
      y.set(p, silu(g.x) * u.x, silu(g.y) * u.y);
    }
    store(args.y, row * vectors + column, y);
  }
}

}  // namespace

template <class T>
void launch_add(const T* a, const T* b, T* y, int64_t count, cudaStream_t stream) {
  TRIPTYCH_CHECK(count >= 0 && count % kVectorWidth == 0, "add: count is not a multiple of 8");
  if (count == 0) return;
  const int64_t vectors = count / kVectorWidth;
  TRIPTYCH_CUDA_CHECK(
      launch_kernel(add_kernel<T>, dim3(static_cast<unsigned>(ceil_div(vectors, kThreads))),
                    dim3(kThreads), 0, stream, LaunchOrder::kAfterPrevious, 1, a, b, y, vectors));
}

template <class T>
void launch_add_bias(T* x, const T* bias, int64_t rows, int64_t columns, cudaStream_t stream) {
  TRIPTYCH_CHECK(columns % kVectorWidth == 0, "add_bias: columns is not a multiple of 8");
  if (rows == 0 || columns == 0) return;
  const int64_t vectors = columns / kVectorWidth;
  const unsigned threads = block_threads(vectors);
  TRIPTYCH_CUDA_CHECK(launch_kernel(add_bias_kernel<T>, row_grid(vectors, threads, rows),
                                    dim3(threads), 0, stream, LaunchOrder::kAfterPrevious, 1, x,
                                    bias, rows, vectors));
}

template <class T>
void launch_swiglu(const SwigluArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.columns % kVectorWidth == 0 && args.stride % kVectorWidth == 0,
                 "swiglu: columns and stride are not multiples of 8");
  if (args.rows == 0 || args.columns == 0) return;
  const int64_t vectors = args.columns / kVectorWidth;
  const unsigned threads = block_threads(vectors);
  TRIPTYCH_CUDA_CHECK(launch_kernel(swiglu_kernel<T>, row_grid(vectors, threads, args.rows),
                                    dim3(threads), 0, stream, args.order, 1, args));
}

#define TRIPTYCH_INSTANTIATE(T)                                                \
  template void launch_add(const T*, const T*, T*, int64_t, cudaStream_t);     \
  template void launch_add_bias(T*, const T*, int64_t, int64_t, cudaStream_t); \
  template void launch_swiglu(const SwigluArgs<T>&, cudaStream_t);
TRIPTYCH_INSTANTIATE(__half)
TRIPTYCH_INSTANTIATE(__nv_bfloat16)
#undef TRIPTYCH_INSTANTIATE

}  // namespace triptych
