// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Operations that copy rows: token embedding, gathering of rows, concatenation of a cache.
#include <algorithm>

#include "base/check.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/vector8.cuh"
#include "kernels/cuda/decoder_ops.h"
#include "kernels/cuda/launch_shape.h"

namespace triptych {
namespace {

constexpr unsigned kThreads = 256;
// Vectors a thread, all in flight before the first is stored: the way to a row is a load itself.
constexpr int kUnroll = 4;

// Row `from` of x to row `to` of y, this block's part of it.
template <class T>
__device__ void copy_row(const T* x, int64_t from, T* y, int64_t to, int64_t vectors) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x * kUnroll + threadIdx.x;
  Vector8<T> values[kUnroll];
#pragma unroll
  for (int v = 0; v < kUnroll; ++v) {
    const int64_t column = first + v * int64_t{blockDim.x};
    if (column < vectors) values[v] = load_once(x, from * vectors + column);
  }
#pragma unroll
  for (int v = 0; v < kUnroll; ++v) {
    const int64_t column = first + v * int64_t{blockDim.x};
    if (column < vectors) store(y, to * vectors + column, values[v]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedArgs<T> args) {
  allow_next_kernel();
  wait_for_previous_kernels();
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const int32_t token = args.tokens[row];
    const int64_t id = token >= 0 ? token : args.last_tokens[-1 - token];
    copy_row(args.table, id, args.out, row, args.hidden_size / kVectorWidth);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const T* x, const int32_t* row_ids, T* y, int64_t rows, int64_t vectors) {
  allow_next_kernel();
  wait_for_previous_kernels();
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    copy_row(x, int64_t{row_ids[row]}, y, row, vectors);
  }
}

// Blocks along y walk the sequences, those along x the vectors of the longer cache in its order:
// [num_kv_heads, new length, head_dim / 8]. A sequence has fewer than 2^31 vectors: divisions of 32
// bits, which are several times cheaper.
template <class T>
__global__ void __launch_bounds__(kThreads) kv_concat_kernel(KvConcatArgs<T> args) {
  allow_next_kernel();
  wait_for_previous_kernels();
  const auto head_vectors = static_cast<uint32_t>(args.head_dim / kVectorWidth);
  const uint32_t token_vectors = static_cast<uint32_t>(args.num_kv_heads) * head_vectors;
  const int64_t row_vectors = args.stride / kVectorWidth;
  for (int64_t s = blockIdx.y; s < args.num_sequences; s += gridDim.y) {
    const auto old_length = static_cast<uint32_t>(args.old_lengths[s]);
    const auto new_length = static_cast<uint32_t>(args.new_lengths[s]);
    const T* const old_sequence = args.old_sequences[s];
    const int64_t new_base = int64_t{args.new_starts[s]} * token_vectors;
    const int64_t first_row = int64_t{args.row_starts[s]} - old_length;  // of token t: + t
    const uint32_t count = new_length * token_vectors;
    const auto load = [&](uint32_t i) {
      const uint32_t head_token = i / head_vectors;
      const uint32_t column = i - head_token * head_vectors;
      const uint32_t head = head_token / new_length;
      const uint32_t token = head_token - head * new_length;
      if (token < old_length) {
        const uint32_t from = (head * old_length + token) * head_vectors + column;
        return load_once(old_sequence, from);
      }
      return load_once(args.rows, (first_row + token) * row_vectors + head * head_vectors + column);
    };
    constexpr uint32_t kBlockVectors = kThreads * kUnroll;
    for (uint32_t i = blockIdx.x * kBlockVectors + threadIdx.x; i < count;
         i += gridDim.x * kBlockVectors) {
      Vector8<T> values[kUnroll];
#pragma unroll
      for (uint32_t v = 0; v < kUnroll; ++v) {
        if (i + v * kThreads < count) values[v] = load(i + v * kThreads);
      }
#pragma unroll
      for (uint32_t v = 0; v < kUnroll; ++v) {
        if (i + v * kThreads < count) store(args.new_cache, new_base + i + v * kThreads, values[v]);
      }
    }
  }
}

// Threads and grid of copy_row.
struct CopyShape {
  CopyShape(int64_t vectors, int64_t rows)
      : threads(block_threads(ceil_div(vectors, kUnroll), kThreads)),
        grid(row_grid(ceil_div(vectors, kUnroll), threads, rows)) {}
  unsigned threads;
  dim3 grid;
};

}  // namespace

template <class T>
void launch_embed(const EmbedArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.hidden_size % kVectorWidth == 0, "embed: hidden_size is not a multiple of 8");
  if (args.rows == 0) return;
  const CopyShape shape(args.hidden_size / kVectorWidth, args.rows);
  TRIPTYCH_CUDA_CHECK(launch_kernel(embed_kernel<T>, shape.grid, dim3(shape.threads), 0, stream,
                                    args.order, 1, args));
}

template <class T>
void launch_gather_rows(const T* x, const int32_t* row_ids, T* y, int64_t rows, int64_t columns,
                        cudaStream_t stream) {
  TRIPTYCH_CHECK(columns % kVectorWidth == 0, "gather_rows: columns is not a multiple of 8");
  if (rows == 0) return;
  const int64_t vectors = columns / kVectorWidth;
  const CopyShape shape(vectors, rows);
  TRIPTYCH_CUDA_CHECK(launch_kernel(gather_rows_kernel<T>, shape.grid, dim3(shape.threads), 0,
                                    stream, LaunchOrder::kAfterPrevious, 1, x, row_ids, y, rows,
                                    vectors));
}

template <class T>
void launch_kv_concat(const KvConcatArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.head_dim % kVectorWidth == 0 && args.stride % kVectorWidth == 0,
                 "kv_concat: head_dim and stride are not multiples of 8");
  if (args.num_sequences == 0 || args.total_tokens == 0) return;
  const int64_t vectors = args.total_tokens * args.num_kv_heads * args.head_dim / kVectorWidth;
  TRIPTYCH_CHECK(vectors < (int64_t{1} << 31), "kv_concat: 2^34 elements or more");
  // Enough for the mean sequence; those of longer ones walk on.
  const int64_t blocks = ceil_div(ceil_div(vectors, args.num_sequences), kThreads * kUnroll);
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(std::min(args.num_sequences, kMaxGridY)));
  TRIPTYCH_CUDA_CHECK(launch_kernel(kv_concat_kernel<T>, grid, dim3(kThreads), 0, stream,
                                    LaunchOrder::kAfterPrevious, 1, args));
}

#define TRIPTYCH_INSTANTIATE(T)                                                                   \
  template void launch_embed(const EmbedArgs<T>&, cudaStream_t);                                  \
  template void launch_gather_rows(const T*, const int32_t*, T*, int64_t, int64_t, cudaStream_t); \
  template void launch_kv_concat(const KvConcatArgs<T>&, cudaStream_t);
TRIPTYCH_INSTANTIATE(__half)
TRIPTYCH_INSTANTIATE(__nv_bfloat16)
#undef TRIPTYCH_INSTANTIATE

}  // namespace triptych
