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

template <class T>
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedArgs<T> args) {
  allow_next_kernel();
  wait_for_previous_kernels();
  const int64_t vectors = args.hidden_size / kVectorWidth;
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= vectors) return;
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const int32_t token = args.tokens[row];
    const int64_t id = token >= 0 ? token : args.last_tokens[-1 - token];
    store(args.out, row * vectors + column, load_once(args.table, id * vectors + column));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const T* x, const int32_t* row_ids, T* y, int64_t rows, int64_t vectors) {
  allow_next_kernel();
  wait_for_previous_kernels();
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= vectors) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t from = row_ids[row];
    store(y, row * vectors + column, load_once(x, from * vectors + column));
  }
}

// Blocks along y walk the sequences, those along x the vectors of the longer cache in its order:
// [num_kv_heads, new length, head_dim / 8].
template <class T>
__global__ void __launch_bounds__(kThreads) kv_concat_kernel(KvConcatArgs<T> args) {
  allow_next_kernel();
  wait_for_previous_kernels();
  const int64_t head_vectors = args.head_dim / kVectorWidth;
  const int64_t token_vectors = args.num_kv_heads * head_vectors;
  const int64_t row_vectors = args.stride / kVectorWidth;
  for (int64_t s = blockIdx.y; s < args.num_sequences; s += gridDim.y) {
    const int64_t old_length = args.old_lengths[s];
    const int64_t new_length = args.new_lengths[s];
    const T* const old_sequence = args.old_sequences[s];
    const int64_t new_base = args.new_starts[s] * token_vectors;
    const int64_t first_row = args.row_starts[s] - old_length;  // row of token t: first_row + t
    const int64_t count = new_length * token_vectors;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
         i += int64_t{gridDim.x} * kThreads) {
      const int64_t head_token = i / head_vectors;
      const int64_t column = i - head_token * head_vectors;
      const int64_t head = head_token / new_length;
      const int64_t token = head_token - head * new_length;
      const Vector8<T> value =
          token < old_length
              ? load_once(old_sequence, (head * old_length + token) * head_vectors + column)
              : load_once(args.rows,
                          (first_row + token) * row_vectors + head * head_vectors + column);
      store(args.new_cache, new_base + i, value);
    }
  }
}

}  // namespace

template <class T>
void launch_embed(const EmbedArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.hidden_size % kVectorWidth == 0, "embed: hidden_size is not a multiple of 8");
  if (args.rows == 0) return;
  const int64_t vectors = args.hidden_size / kVectorWidth;
  const unsigned threads = block_threads(vectors);
  TRIPTYCH_CUDA_CHECK(launch_kernel(embed_kernel<T>, row_grid(vectors, threads, args.rows),
                                    dim3(threads), 0, stream, args.order, 1, args));
}

template <class T>
void launch_gather_rows(const T* x, const int32_t* row_ids, T* y, int64_t rows, int64_t columns,
                        cudaStream_t stream) {
  TRIPTYCH_CHECK(columns % kVectorWidth == 0, "gather_rows: columns is not a multiple of 8");
  if (rows == 0) return;
  const int64_t vectors = columns / kVectorWidth;
  const unsigned threads = block_threads(vectors);
  TRIPTYCH_CUDA_CHECK(launch_kernel(gather_rows_kernel<T>, row_grid(vectors, threads, rows),
                                    dim3(threads), 0, stream, LaunchOrder::kAfterPrevious, 1, x,
                                    row_ids, y, rows, vectors));
}

template <class T>
void launch_kv_concat(const KvConcatArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.head_dim % kVectorWidth == 0 && args.stride % kVectorWidth == 0,
                 "kv_concat: head_dim and stride are not multiples of 8");
  if (args.num_sequences == 0 || args.total_tokens == 0) return;
  // Enough for the mean sequence with one vector a thread; those of longer ones walk on.
  const int64_t vectors = args.total_tokens * args.num_kv_heads * args.head_dim / kVectorWidth;
  const int64_t blocks =
      std::min(ceil_div(ceil_div(vectors, args.num_sequences), kThreads), kMaxGridX);
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
