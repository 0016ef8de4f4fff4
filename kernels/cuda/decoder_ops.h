// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The small operations of a decoder layer on a CUDA device. T is __half or __nv_bfloat16; results
// are rounded to T once, arithmetic is f32. All pointers are device memory; rows are back to back
// unless a stride (in elements) is given. The twins on the CPU are in kernels/cpu/ops.h.
// Launches throw DeviceError if they fail.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/result.h"
#include "kernels/cost.h"
#include "kernels/cuda/kv_view.h"
#include "kernels/cuda/launch.h"
#include "kernels/rope.h"

namespace triptych {

/// out[i] = row id(i) of table, id(i) = tokens[i], or last_tokens[-1 - tokens[i]] if negative: the
/// token that a slot was given in the step before, which the host may not know yet.
template <class T>
struct EmbedArgs {
  const T* table = nullptr;  ///< [vocab_size, hidden_size]
  int64_t hidden_size = 0;
  const int32_t* tokens = nullptr;  ///< [rows]
  const int32_t* last_tokens = nullptr;
  T* out = nullptr;  ///< [rows, hidden_size]
  int64_t rows = 0;
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};
template <class T>
void launch_embed(const EmbedArgs<T>& args, cudaStream_t stream);

/// y = a + b, `count` elements; y may be a or b.
template <class T>
void launch_add(const T* a, const T* b, T* y, int64_t count, cudaStream_t stream);
/// x[r, c] += bias[c].  x: [rows, columns].
template <class T>
void launch_add_bias(T* x, const T* bias, int64_t rows, int64_t columns, cudaStream_t stream);

/// y = silu(gate) * up.  gate, up: [rows, columns] with rows `stride` apart; y: [rows, columns].
template <class T>
struct SwigluArgs {
  const T* gate = nullptr;
  const T* up = nullptr;
  int64_t stride = 0;
  T* y = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};
template <class T>
void launch_swiglu(const SwigluArgs<T>& args, cudaStream_t stream);

/// The RMS norm of every head of x, [rows, num_heads, head_dim] with rows `stride` apart, in place.
template <class T>
struct HeadNormArgs {
  T* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  const T* weight = nullptr;  ///< [head_dim]
  float eps = 0.0f;
};
template <class T>
void launch_head_norm(const HeadNormArgs<T>& args, cudaStream_t stream);

/// Rotates every head of x, [rows, num_heads, head_dim] with rows `stride` apart, in place, pair i
/// by the angle positions[row] * inv_freq[i]; 0 <= position < 2^20. cos and sin are within 2^-22
/// (kernels/common/rope_angle.h).
template <class T>
struct RopeCudaArgs {
  T* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  const int32_t* positions = nullptr;  ///< [rows]
  const float* inv_freq = nullptr;     ///< [head_dim / 2]
  RopeKind kind = RopeKind::kHalfSplit;
};
template <class T>
void launch_rope(const RopeCudaArgs<T>& args, cudaStream_t stream);

/// Rows of new keys and values, and where they belong.
template <class T>
struct NewKv {
  const T* k = nullptr;  ///< [rows, num_kv_heads, head_dim], rows `stride` apart.
  const T* v = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  const int32_t* positions = nullptr;      ///< [rows]: token of its sequence.
  const int32_t* row_sequences = nullptr;  ///< [rows]: sequence of the view; negative: skipped.
};
/// Writes the rows into a paged cache.
template <class T>
void launch_kv_append(const NewKv<T>& rows, const KvView<T>& kv, cudaStream_t stream);

/// Concatenation: a longer contiguous cache = an old one and the new rows, for keys or for values
/// (one launch each, as two concatenations of tensors are).
template <class T>
struct KvConcatArgs {
  /// [num_sequences]: where each sequence's [num_kv_heads, old length, head_dim] begins; not read
  /// where the old length is 0.
  const T* const* old_sequences = nullptr;
  const int32_t* old_lengths = nullptr;  ///< [num_sequences]; may be 0.
  T* new_cache = nullptr;
  const int32_t* new_starts = nullptr;
  const int32_t* new_lengths = nullptr;  ///< old length + new rows of each sequence.
  const T* rows = nullptr;               ///< [num_rows, num_kv_heads, head_dim], `stride` apart.
  int64_t stride = 0;
  const int32_t* row_starts = nullptr;  ///< [num_sequences + 1]: rows of each sequence.
  int64_t num_sequences = 0;
  int64_t total_tokens = 0;  ///< Sum of the new lengths.
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
};
template <class T>
void launch_kv_concat(const KvConcatArgs<T>& args, cudaStream_t stream);

/// In one kernel: bias, norm of the heads, rotation of q and k, and the append of k and v to a
/// paged cache. The numbers are those of the single operations up to their roundings to T between
/// them. qkv: [rows, (num_q_heads + 2 num_kv_heads) * head_dim], q, k and v of a row side by side.
template <class T>
struct RopeKvAppendArgs {
  const T* qkv = nullptr;
  int64_t rows = 0;
  const T* bias = nullptr;    ///< [(num_q_heads + 2 num_kv_heads) * head_dim]; null: none.
  const T* q_norm = nullptr;  ///< [head_dim]; null: none.
  const T* k_norm = nullptr;
  float eps = 0.0f;
  T* q_out = nullptr;  ///< [rows, num_q_heads * head_dim]; may not overlap qkv.
  int64_t num_q_heads = 0;
  KvView<T> kv;
  const int32_t* positions = nullptr;
  const int32_t* row_sequences = nullptr;
  const float* inv_freq = nullptr;
  RopeKind kind = RopeKind::kHalfSplit;
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};
template <class T>
void launch_rope_kv_append(const RopeKvAppendArgs<T>& args, cudaStream_t stream);

/// y[i] = x[row_ids[i]].  x: [*, columns], y: [rows, columns].
template <class T>
void launch_gather_rows(const T* x, const int32_t* row_ids, T* y, int64_t rows, int64_t columns,
                        cudaStream_t stream);

/// Requirements shared by the operations above: head_dim a multiple of 8 and at most 256;
/// hidden_size, columns, counts and strides multiples of 8; pointers aligned to 16 bytes. Errors:
/// kUnsupported naming the number.
[[nodiscard]] Status decoder_ops_support(int64_t hidden_size, int64_t head_dim,
                                         int64_t intermediate_size);

}  // namespace triptych
