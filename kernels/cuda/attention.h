// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Attention on a CUDA device over cached keys and values: one query a sequence (decode), or many
// (prefill). The twin on the CPU is cpu::attention, the reference cpu::attention_ref.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "kernels/cost.h"
#include "kernels/cuda/kv_view.h"
#include "kernels/cuda/launch.h"

namespace triptych {

/// out = softmax(q k^T * scale) v. Query head h reads KV head h / (num_q_heads / num_kv_heads).
/// The keys and values of the queries' own tokens are in the cache already. Scores, softmax and
/// sums in f32; the weights are rounded to T before they meet the values. T is __half or
/// __nv_bfloat16; all pointers are device memory, q and out aligned to 16 bytes, rows of q to 16
/// bytes each. head_dim is a multiple of 8 up to 256, a KV head has at most 16 query heads, pages
/// hold a multiple of 8 tokens. Slots of the cache that no query sees are not read and may hold
/// anything.
template <class T>
struct AttentionArgs {
  const T* q = nullptr;  ///< [rows, num_q_heads, head_dim], rows q_stride elements apart.
  int64_t q_stride = 0;
  T* out = nullptr;  ///< [rows, num_q_heads * head_dim], back to back.
  KvView<T> kv;
  int64_t num_q_heads = 0;
  int64_t num_sequences = 0;
  /// [num_sequences]: tokens of each sequence, this step's included. 0 = padding: nothing is read
  /// and the output row is zero (decode only).
  const int32_t* kv_lengths = nullptr;
  /// Prefill: rows [row_starts[s], row_starts[s + 1]) are the newest tokens of sequence s. Decode:
  /// ignored, row s is the newest token of sequence s.
  const int32_t* row_starts = nullptr;
  int64_t rows = 0;  ///< Of all sequences together.
  /// No sequence is longer; a graph is captured for this bound. Decode is spread over the device by
  /// it, so that a bound far above the true lengths costs time.
  int64_t max_kv_length = 0;
  float scale = 0.0f;
  int64_t window = 0;  ///< A query at position p sees keys p - window + 1 to p; 0 = all to p.
  /// attention_workspace_bytes() of device memory, zero at first; launches leave it zero where they
  /// rely on that. Two launches that may run at the same time need two. Decode on sm_90 does
  /// without where head_dim is 64, 128 or 256 and pages are a multiple of 16 tokens; prefill
  /// always.
  void* workspace = nullptr;
  /// Overlapping decode reads kv_lengths, the page table and the keys and values of all tokens but
  /// the newest of each sequence before the previous kernel has ended; overlapping prefill only
  /// row_starts.
  LaunchOrder order = LaunchOrder::kAfterPrevious;
};

/// Bytes that any launch with at most these sizes needs; a bound on the blocks that share work
/// bounds them, however many sequences there are.
[[nodiscard]] int64_t attention_workspace_bytes(int64_t max_sequences, int64_t num_q_heads,
                                                int64_t num_kv_heads, int64_t head_dim);

/// Whether the current device can run these arguments; the error says which requirement fails.
template <class T>
[[nodiscard]] Status decode_attention_supports(const AttentionArgs<T>& args);
template <class T>
[[nodiscard]] Status prefill_attention_supports(const AttentionArgs<T>& args);

/// One query a sequence. The keys of each sequence and KV head are split over blocks, how often
/// depends on num_sequences, num_kv_heads, max_kv_length, window and the device; with these alike,
/// a row's result does not depend on the other rows. Throws DeviceError if the launch fails.
template <class T>
void launch_decode_attention(const AttentionArgs<T>& args, cudaStream_t stream);
/// Causal within each sequence's new rows and their past. A row's result depends on its own
/// sequence only. Throws DeviceError if the launch fails.
template <class T>
void launch_prefill_attention(const AttentionArgs<T>& args, cudaStream_t stream);

/// Name of the variant that a launch would choose, e.g. "decode_attention_f16_sm90a".
template <class T>
[[nodiscard]] std::string_view decode_attention_name(const AttentionArgs<T>& args);
template <class T>
[[nodiscard]] std::string_view prefill_attention_name(const AttentionArgs<T>& args);

/// Keys and values once for each KV head, q and out once; `attended` = sum of the keys that each
/// query sees, `keys` = sum of the keys that each sequence reads.
[[nodiscard]] KernelCost attention_cost(int64_t rows, int64_t keys, int64_t attended,
                                        int64_t num_q_heads, int64_t num_kv_heads,
                                        int64_t head_dim);

}  // namespace triptych
