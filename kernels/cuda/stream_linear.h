// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Linear layers of few rows (decode): each weight is streamed from memory once, and what stands
// before and after the product in a decoder layer happens in the same kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "kernels/cost.h"
#include "kernels/cuda/kv_view.h"
#include "kernels/cuda/launch.h"
#include "kernels/rope.h"

namespace triptych {

/// Most rows of x that one tensor-core product takes: as many with a norm on sm_90. For more of
/// them launch_rms_norm (kernels/rms_norm.h) makes the norm before; with
/// LaunchOrder::kOverlapPrevious the weights come in beside it.
inline constexpr int64_t kMaxNarrowStreamRows = 8;
/// Most rows of x that every device takes, with a norm on others than sm_90, too.
inline constexpr int64_t kMaxStreamRows = 16;
/// Most rows of x as it is on sm_90.
inline constexpr int64_t kMaxWideStreamRows = 32;

/// A row-major weight matrix [n, k] of T on the device, prepared for streaming. Keeps no memory:
/// `data` stays the caller's. T is __half or __nv_bfloat16.
template <class T>
struct StreamWeight {
  const T* data = nullptr;
  int64_t n = 0;
  int64_t k = 0;
  bool tma = false;  ///< Whether the kernels of sm_90 run; otherwise those of every device do.
};
/// For the current device. Errors: kUnsupported naming the requirement: k a multiple of 64, n of 8,
/// data aligned to 16 bytes.
template <class T>
[[nodiscard]] Result<StreamWeight<T>> make_stream_weight(const T* data, int64_t n, int64_t k);

/// The input of a product: x, or its RMS norm x / sqrt(mean(x^2) + eps) * norm. Each element of a
/// norm is rounded to T once: on sm_90, x * norm times a power of two of the row (1 / RMS
/// multiplies the f32 sums); elsewhere the norm itself.
template <class T>
struct StreamInput {
  const T* x = nullptr;     ///< [m, k], back to back, aligned to 16 bytes.
  int64_t m = 0;            ///< 1 to kMaxStreamRows; on sm_90 to kMaxNarrowStreamRows with a norm,
                            ///< to kMaxWideStreamRows without.
  const T* norm = nullptr;  ///< [k]; null: x as it is.
  float eps = 0.0f;
};

/// y = input W^T, or y += input W^T with `accumulate` (then y is the residual stream; the sum is
/// rounded to T once). y: [m, n] of T. y may not overlap x.
template <class T>
struct StreamLinearArgs {
  StreamInput<T> input;
  const StreamWeight<T>* w = nullptr;
  T* y = nullptr;
  bool accumulate = false;
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};

/// w = [q; k; v] rows, num_q_heads * head_dim + 2 * num_kv_heads * head_dim of them.
/// The product plus bias, then the rotation of q and k by the rows' positions; q goes to q_out, k
/// and v go to the cache. Models with a norm on q and k use launch_stream_linear and
/// launch_rope_kv_append (kernels/cuda/decoder_ops.h) instead.
template <class T>
struct StreamQkvArgs {
  StreamInput<T> input;
  const StreamWeight<T>* w = nullptr;
  const T* bias = nullptr;  ///< [n] in the order of w; null: none.
  T* q_out = nullptr;       ///< [m, num_q_heads * head_dim]
  KvView<T> kv;             ///< Paged.
  int64_t num_q_heads = 0;
  const int32_t* positions = nullptr;  ///< [m]
  /// [m]: the sequence (row of the page table) of each row; negative: padding, writes no cache.
  const int32_t* row_sequences = nullptr;
  const float* inv_freq = nullptr;  ///< [head_dim / 2]
  RopeKind rope_kind = RopeKind::kHalfSplit;
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};

/// w = [gate; up] rows.  y = silu(input Wg^T) * (input Wu^T).  y: [m, w.n / 2].
template <class T>
struct StreamGateUpArgs {
  StreamInput<T> input;
  const StreamWeight<T>* w = nullptr;
  T* y = nullptr;
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};

/// Whether these can run; the error says which requirement fails.
template <class T>
[[nodiscard]] Status stream_linear_supports(const StreamLinearArgs<T>& args);
template <class T>
[[nodiscard]] Status stream_qkv_supports(const StreamQkvArgs<T>& args);
template <class T>
[[nodiscard]] Status stream_gate_up_supports(const StreamGateUpArgs<T>& args);

/// Sums in f32. Their order depends on k and on whether m is above kMaxNarrowStreamRows: a row's
/// result does not depend on the other rows there. Throw DeviceError if the launch fails.
template <class T>
void launch_stream_linear(const StreamLinearArgs<T>& args, cudaStream_t stream);
template <class T>
void launch_stream_qkv(const StreamQkvArgs<T>& args, cudaStream_t stream);
template <class T>
void launch_stream_gate_up(const StreamGateUpArgs<T>& args, cudaStream_t stream);

/// Name of the variant for x as it is, e.g. "stream_linear_f16_sm90a".
template <class T>
[[nodiscard]] std::string_view stream_linear_name(const StreamWeight<T>& w, int64_t m);

/// The weights once, x and y once; 2 m n k flops.
[[nodiscard]] KernelCost stream_linear_cost(int64_t m, int64_t n, int64_t k, int64_t y_columns,
                                            int64_t element_bytes);

}  // namespace triptych
