// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Ops: the table of operations that a device fills. forward.cpp is written over it, once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/common/dtype.h"
#include "profiler/phase.h"

namespace triptych {

class KvCache;

/// A dense row-major matrix of activations in device memory; does not own it. The element type is
/// the device's (f32 on the CPU).
struct Tensor {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_bytes = 0;

  [[nodiscard]] int64_t bytes() const { return rows * row_bytes; }
  /// Rows [first, first + count).
  [[nodiscard]] Tensor slice(int64_t first, int64_t count) const {
    return {static_cast<std::byte*>(data) + first * row_bytes, count, columns, row_bytes};
  }
};

/// The rows that one sequence has in a step: its tokens [first_position, first_position +
/// num_tokens).
struct StepSequence {
  int64_t slot = 0;  ///< Its place in the KV cache.
  int64_t first_position = 0;
  int64_t num_tokens = 0;
};

/// One pass through the model: any mix of prompt slices and single tokens of several sequences.
/// Host memory; it must live until the step's results have been fetched. The cache already has room
/// for the new tokens (KvCache::extend).
struct Step {
  std::span<const int32_t> tokens = {};          ///< [rows]
  std::span<const int32_t> positions = {};       ///< [rows]
  std::span<const StepSequence> sequences = {};  ///< Their rows lie one after another.
  KvCache* cache = nullptr;

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

/// Operations are issued in order and may run asynchronously in that order; only fetch_tokens and
/// logits_to_host wait for results. Operands never overlap unless said. Heads, rotary tables and
/// the norm's epsilon belong to the model that the implementation was made for.
class Ops {
 public:
  virtual ~Ops() = default;

  /// Operations are reported to `sink` from now on; null turns reporting off.
  virtual void set_sink(ActivitySink* sink) = 0;

  /// Bytes of one element of an activation.
  [[nodiscard]] virtual int64_t element_bytes() const = 0;
  /// Device memory, aligned to 64 bytes; throws std::bad_alloc, which the engine turns into
  /// kOutOfMemory. `bytes` of release must be those of allocate.
  [[nodiscard]] virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory, int64_t bytes) noexcept = 0;
  /// Device to device; `name` is what the trace calls it.
  virtual void copy(const std::byte* from, std::byte* to, int64_t bytes, std::string_view name) = 0;
  /// The same weights where the device reads them, for as long as this object lives.
  [[nodiscard]] virtual WeightView resident(const WeightView& weights) = 0;
  [[nodiscard]] virtual const float* resident(std::span<const float> weights) = 0;

  /// Makes `step` the one that the operations below work on.
  virtual void begin_step(const Step& step) = 0;

  /// out[i] = row tokens[i] of table.  out: [rows, hidden_size].
  virtual void embed(const WeightView& table, Tensor out) = 0;
  /// y = x / sqrt(mean(x^2) + eps) * weight, per row.  x, y: [rows, hidden_size].
  virtual void rms_norm(Tensor x, const float* weight, Tensor y) = 0;
  /// residual += x, then y = rms_norm(residual). All [rows, hidden_size].
  virtual void rms_norm_residual(Tensor x, Tensor residual, const float* weight, Tensor y) = 0;
  /// y = x W^T.  x: [m, w.columns], y: [m, w.rows].
  virtual void linear(Tensor x, const WeightView& w, Tensor y) = 0;
  /// y[i] = x W[i]^T in one call; the numbers are those of linear().
  virtual void linear_group(Tensor x, std::span<const WeightView> w, std::span<const Tensor> y) = 0;
  /// y = silu(x Wg^T) * (x Wu^T) in one call.
  virtual void gate_up_swiglu(Tensor x, const WeightView& gate, const WeightView& up, Tensor y) = 0;
  /// y = silu(gate) * up, element by element.
  virtual void swiglu(Tensor gate, Tensor up, Tensor y) = 0;
  /// y = a + b, element by element.
  virtual void add(Tensor a, Tensor b, Tensor y) = 0;
  /// Rotates every head of x, [rows, heads, head_dim], by the rows' positions, in place.
  virtual void rope(Tensor x) = 0;
  /// Writes the rows' keys and values, [rows, num_kv_heads, head_dim], into the cache at `layer`,
  /// in the cache's format.
  virtual void kv_append(int64_t layer, Tensor k, Tensor v) = 0;
  /// rope(q), rope(k), kv_append(layer, k, v) in one call.
  virtual void rope_kv_append(int64_t layer, Tensor q, Tensor k, Tensor v) = 0;
  /// Causal attention of the rows over their own sequences' cache at `layer`.
  /// q, out: [rows, num_q_heads, head_dim].
  virtual void attention(int64_t layer, Tensor q, Tensor out) = 0;

  /// y[i] = row rows[i] of x.  x: [m, n], y: [rows.size(), n].
  virtual void gather_rows(Tensor x, std::span<const int64_t> rows, Tensor y) = 0;
  /// Chooses the largest logit of each row where the logits are; the lowest index wins a tie.
  virtual void argmax(Tensor logits) = 0;
  /// Waits for the last argmax and gives its token ids, one a row.
  virtual void fetch_tokens(std::span<int32_t> out) = 0;
  /// Waits and copies the logits into host memory as f32.  out: [logits.rows, logits.columns].
  virtual void logits_to_host(Tensor logits, std::span<float> out) = 0;
};

}  // namespace triptych
