// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The other operations of a decoder layer on the CPU. All activations are f32, row-major.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/dtype.h"
#include "kernels/common/half.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

namespace triptych::cpu {

/// out[i] = row tokens[i] of table, f32.  out: [num_tokens, table.columns].
/// Precondition: 0 <= tokens[i] < table.rows.
void embed(const WeightView& table, std::span<const int32_t> tokens, float* out);

/// See kernels/rms_norm.h. When args.residual is set: residual += x first, then the norm of it.
void rms_norm(const RmsNormArgs<float>& args, ThreadPool& pool);

/// See kernels/rope.h. In place. Angles are formed and reduced in double; cos and sin are within
/// 3 ulp. Requires an even head_dim <= 1024 and one frequency per pair.
void rope(const RopeArgs& args);

/// y = x / sqrt(mean(x^2) + eps) * weight of each of `count` vectors that lie back to back, in
/// place, in the calling thread.  x: [count, size], weight: [size]. Moves 8 * count * size bytes.
void head_norm(float* x, const float* weight, int64_t count, int64_t size, float eps);

/// out = a + b, element by element; out may alias a or b.
void add(const float* a, const float* b, float* out, int64_t count);
/// out = silu(gate) * up, silu(x) = x / (1 + exp(-x)); out may alias gate or up.
void swiglu(const float* gate, const float* up, float* out, int64_t count);
/// Round to nearest even.
void to_half(const float* in, Half* out, int64_t count);
/// Index of the largest value; the lowest index wins a tie; NaN never wins (all NaN: 0). Requires
/// count > 0.
[[nodiscard]] int32_t argmax(const float* values, int64_t count);
/// ln(sum(exp(values))) in double with the maximum subtracted; NaN if one of them is. Requires
/// count > 0.
[[nodiscard]] double log_sum_exp(const float* values, int64_t count);

/// Keys and values of one sequence in one layer. Token t lies in page t / page_size at slot
/// t % page_size; a page is [page_size, num_kv_heads, head_dim] f16. A contiguous cache is one page
/// that is as long as the sequence.
struct KvView {
  const Half* const* k_pages = nullptr;
  const Half* const* v_pages = nullptr;
  int64_t page_size = 0;
};

/// Causal attention of one sequence: query i sits at position first_position + i and sees the keys
/// up to its own; with a window only the last `window` of these.  q and out: [num_queries,
/// num_q_heads, head_dim].
struct AttentionSequence {
  const float* q = nullptr;
  float* out = nullptr;
  int64_t num_queries = 0;
  int64_t first_position = 0;
  KvView kv;
};

/// out = softmax(q k^T * scale) v for each sequence and query head; query head h reads KV head
/// h / (num_q_heads / num_kv_heads). Softmax in f32 with the maximum subtracted.
struct AttentionArgs {
  std::span<const AttentionSequence> sequences;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 0.0f;
  int64_t window = 0;  ///< 0 = all keys. Pages that lie wholly outside are not read.
};

/// Keys of one sequence that its queries read together, each counted once.
[[nodiscard]] constexpr int64_t attended_keys(const AttentionSequence& sequence, int64_t window) {
  const int64_t end = sequence.first_position + sequence.num_queries;
  const int64_t oldest = sequence.first_position - window + 1;
  return window > 0 && oldest > 0 ? end - oldest : end;
}

void attention(const AttentionArgs& args, ThreadPool& pool);
/// The reference: double accumulation, plain loops.
void attention_ref(const AttentionArgs& args);

}  // namespace triptych::cpu
