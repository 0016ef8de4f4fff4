// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Streaming linear layers on any device from sm_80 on: weights go from memory to registers in the
// shape that tensor cores take them, x comes through the L1 cache. The warps of a block cut k.
#include <algorithm>

#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/stream_epilogue.cuh"

namespace triptych {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kBlocksPerMultiprocessor = 3;
constexpr int kColumnTile = 8;    // rows of x in one tensor-core product
constexpr int kStepColumns = 32;  // a lane's 8 of them are two products' operands
constexpr int kStepsInFlight = 4;
constexpr int kMaxRows = 16;

// 1 / RMS of the rows of x. A warp takes whole rows: the order of a sum depends on k alone.
template <class T>
__device__ void find_scales(const StreamOp<T>& op, float* scales) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int r = warp; r < op.m; r += kWarps) {
    float sum = 0.0f;
    for (int v = lane; v < op.k / 8; v += kWarp) {
      const Vector8<T> x = load_once(op.x + static_cast<int64_t>(r) * op.k, v);
#pragma unroll
      for (int p = 0; p < Vector8<T>::kPairs; ++p) {
        const float2 f = x.get(p);
        sum += f.x * f.x + f.y * f.y;
      }
    }
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    }
    if (lane == 0) scales[r] = rsqrtf(sum / static_cast<float>(op.k) + op.eps);
  }
}

// What a lane of a warp reads. With lane = 4 g + t it holds rows g and g + 8 of the tile and row g
// of each column tile of x, columns 8 t to 8 t + 7 of a step: the first four belong to one product
// of 16 columns, the others to the next, for w and x alike, so that a sum meets each column once.
template <class T, int kColumnTiles>
struct Operands {
  Vector8<T> w[2];
  Vector8<T> x[kColumnTiles];
  Vector8<T> norm;
};

template <class T, int kColumnTiles>
class WarpProduct {
 public:
  __device__ WarpProduct(const StreamOp<T>& op, int tile, const float* scales) : op_(op) {
    const int group = static_cast<int>(threadIdx.x) % kWarp / 4;
    const int row = stream_tile_row(op.tiles, tile) + group;
    // Rows past the end are read as the last one; what comes of them is not stored.
    w_[0] = op.w + static_cast<int64_t>(min(row, op.n - 1)) * op.k;
    w_[1] = op.w + static_cast<int64_t>(min(row + op.tiles.second, op.n - 1)) * op.k;
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const int r = min(j * kColumnTile + group, op.m - 1);
      x_[j] = op.x + static_cast<int64_t>(r) * op.k;
      scale_[j] = op.norm != nullptr ? scales[r] : 1.0f;
    }
  }

  __device__ void run(int warp) {
    const int steps = op_.k / kStepColumns;
    for (int first = warp; first < steps; first += kWarps * kStepsInFlight) {
      Operands<T, kColumnTiles> in[kStepsInFlight];
#pragma unroll
      for (int i = 0; i < kStepsInFlight; ++i) {
        if (first + i * kWarps < steps) load(in[i], first + i * kWarps);
      }
#pragma unroll
      for (int i = 0; i < kStepsInFlight; ++i) {
        if (first + i * kWarps < steps) multiply(in[i]);
      }
    }
  }

  float acc[kColumnTiles][2][4] = {};

 private:
  __device__ void load(Operands<T, kColumnTiles>& in, int step) const {
    const int v = step * (kStepColumns / 8) + static_cast<int>(threadIdx.x) % 4;
    in.w[0] = load_once(w_[0], v);
    in.w[1] = load_once(w_[1], v);
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) in.x[j] = load_once(x_[j], v);
    if (op_.norm != nullptr) in.norm = load_shared_by_blocks(op_.norm, v);
  }
  __device__ void multiply(Operands<T, kColumnTiles>& in) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      Vector8<T>& x = in.x[j];
      if (op_.norm != nullptr) {
#pragma unroll
        for (int p = 0; p < Vector8<T>::kPairs; ++p) {
          const float2 f = x.get(p);
          const float2 g = in.norm.get(p);
          x.set(p, f.x * scale_[j] * g.x, f.y * scale_[j] * g.y);
        }
      }
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        mma_m16n8k16<T>(acc[j][s], in.w[0].words[2 * s], in.w[1].words[2 * s],
                        in.w[0].words[2 * s + 1], in.w[1].words[2 * s + 1], x.words[2 * s],
                        x.words[2 * s + 1]);
      }
    }
  }

  const StreamOp<T>& op_;
  const T* w_[2];
  const T* x_[kColumnTiles];
  float scale_[kColumnTiles];
};

template <class T, StreamEpilogue kEpilogue, int kColumnTiles>
__global__ void __launch_bounds__(kThreads) stream_kernel(const __grid_constant__ StreamOp<T> op) {
  constexpr int kColumns = kColumnTiles * kColumnTile;
  __shared__ float scales[kMaxRows];
  __shared__ float sums[kWarps][kColumns][kStreamTileRows];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  allow_next_kernel();
  wait_for_previous_kernels();
  if (op.norm != nullptr) find_scales(op, scales);
  __syncthreads();
  for (int tile = static_cast<int>(blockIdx.x); tile < op.tiles.count;
       tile += static_cast<int>(gridDim.x)) {
    WarpProduct<T, kColumnTiles> product(op, tile, scales);
    product.run(warp);
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[warp][j * kColumnTile + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * kStreamTilePairs] =
            product.acc[j][0][i] + product.acc[j][1][i];
      }
    }
    __syncthreads();
    const int pair = static_cast<int>(threadIdx.x) % kStreamTilePairs;
    const int row = static_cast<int>(threadIdx.x) / kStreamTilePairs;
    if (row < op.m) {
      const bool split = stream_pairs_are_split(op.tiles);
      const int first = split ? pair : 2 * pair;
      const int second = split ? pair + kStreamTilePairs : first + 1;
      StreamPair<T, kEpilogue> out;
      out.prepare(op, tile, pair, row);
      float2 sum = make_float2(0.0f, 0.0f);
      for (int w = 0; w < kWarps; ++w) {
        sum.x += sums[w][row][first];
        sum.y += sums[w][row][second];
      }
      out.finish(sum);
    }
    __syncthreads();
  }
}

template <class T>
using Kernel = void (*)(const StreamOp<T>);

template <class T, int kColumnTiles>
Kernel<T> choose_kernel(StreamEpilogue epilogue) {
  switch (epilogue) {
    case StreamEpilogue::kLinear:
      return stream_kernel<T, StreamEpilogue::kLinear, kColumnTiles>;
    case StreamEpilogue::kQkv:
      return stream_kernel<T, StreamEpilogue::kQkv, kColumnTiles>;
    case StreamEpilogue::kGateUp:
      return stream_kernel<T, StreamEpilogue::kGateUp, kColumnTiles>;
  }
  return nullptr;
}

}  // namespace

template <class T>
void launch_stream_general(const StreamOp<T>& op, StreamEpilogue epilogue, LaunchOrder order,
                           cudaStream_t stream) {
  int device = 0;
  int multiprocessors = 0;
  TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
  TRIPTYCH_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  const Kernel<T> kernel =
      op.m <= kColumnTile ? choose_kernel<T, 1>(epilogue) : choose_kernel<T, 2>(epilogue);
  const int blocks = std::min(op.tiles.count, multiprocessors * kBlocksPerMultiprocessor);
  TRIPTYCH_CUDA_CHECK(launch_kernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0,
                                    stream, order, 1, op));
}

template void launch_stream_general(const StreamOp<__half>&, StreamEpilogue, LaunchOrder,
                                    cudaStream_t);
template void launch_stream_general(const StreamOp<__nv_bfloat16>&, StreamEpilogue, LaunchOrder,
                                    cudaStream_t);

}  // namespace triptych
