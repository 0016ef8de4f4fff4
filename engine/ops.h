// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Ops: the table of operations that a device fills. forward.cpp is written over it, once.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "engine/runtime_features.h"
#include "engine/step.h"
#include "kernels/common/dtype.h"
#include "kernels/sampling.h"
#include "profiler/phase.h"

namespace triptych {

struct KvShape;

/// A vector of weights (norm, bias) in the device's element type, in device memory.
using DeviceVector = const void*;

/// What a family adds between the q, k and v projections and attention; null where it does not.
struct QkvExtras {
  DeviceVector q_bias = nullptr;  ///< [num_q_heads * head_dim]
  DeviceVector k_bias = nullptr;  ///< [num_kv_heads * head_dim]
  DeviceVector v_bias = nullptr;  ///< [num_kv_heads * head_dim]
  DeviceVector q_norm = nullptr;  ///< [head_dim]
  DeviceVector k_norm = nullptr;  ///< [head_dim]
};

/// The RMS norm of the residual stream as the input of a fused product. A device computes it into
/// `normed` beforehand or inside the product that reads it, as it is faster.
struct NormedInput {
  Tensor residual;  ///< [rows, hidden_size]
  DeviceVector weight = nullptr;
  Tensor normed;  ///< [rows, hidden_size]
};
/// Whether the norm's values are needed now, or by fused products only.
enum class NormUse : uint8_t { kValues, kFusedProducts };

/// What a graph stands for: decode steps of so many rows, of sequences up to a length.
struct GraphKey {
  int64_t rows = 0;
  int64_t kv_bound = 0;
  friend auto operator<=>(const GraphKey&, const GraphKey&) = default;
};

struct QkvWeights {
  WeightView q, k, v;
  QkvExtras extras;
};

/// Operations are issued in order and may run asynchronously in that order; only fetch_tokens and
/// logits_to_host wait for results. Operands never overlap unless said. Heads, rotary tables,
/// windows and the norm's epsilon belong to the model that the implementation was made for.
class Ops {
 public:
  virtual ~Ops() = default;

  /// Operations are reported to `sink` from now on; null turns reporting off.
  virtual void set_sink(ActivitySink* sink) = 0;

  [[nodiscard]] virtual DeviceKind device() const = 0;
  /// Device memory, aligned to 64 bytes; throws std::bad_alloc or DeviceError, which the
  /// engine turns into kOutOfMemory. `bytes` of release must be those of allocate.
  [[nodiscard]] virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory, int64_t bytes) noexcept = 0;
  /// Device to device; `name` is what the trace calls it.
  virtual void copy(const std::byte* from, std::byte* to, int64_t bytes, std::string_view name) = 0;
  /// Device memory that is held as long as the engine: arena and page pool. Engines of one process
  /// take turns, and on a device they share this memory: what is in it is lost between two turns.
  [[nodiscard]] virtual std::byte* allocate_pool(int64_t bytes) { return allocate(bytes); }
  virtual void release_pool(std::byte* memory, int64_t bytes) noexcept { release(memory, bytes); }
  /// The KV cache that the operations below work on: pages of `page_size` tokens, `num_pages` of
  /// them, or, with page_size 0, sequences that grow by concatenation.
  [[nodiscard]] virtual std::unique_ptr<KvCache> make_cache(const KvShape& shape, int64_t page_size,
                                                            int64_t num_pages) = 0;
  /// The same weights where the device reads them, for as long as this object lives.
  [[nodiscard]] virtual WeightView resident(const WeightView& weights) = 0;
  [[nodiscard]] virtual DeviceVector resident(std::span<const float> weights) = 0;

  /// Makes `step` the one that the operations below work on.
  virtual void begin_step(const Step& step) = 0;
  /// Issues what `body` issues. Where the device has graphs, body runs only when no graph with this
  /// key exists, and is recorded: it must issue the same operations on the same memory every time.
  virtual void run_recorded(GraphKey key, const std::function<void()>& body) {
    static_cast<void>(key);
    body();
  }

  /// out[i] = row tokens[i] of table.  out: [rows, hidden_size].
  virtual void embed(const WeightView& table, Tensor out) = 0;
  /// y = x / sqrt(mean(x^2) + eps) * weight, per row.  x, y: [rows, hidden_size].
  virtual void rms_norm(Tensor x, DeviceVector weight, Tensor y) = 0;
  /// y = x W^T.  x: [m, w.columns], y: [m, w.rows].
  virtual void linear(Tensor x, const WeightView& w, Tensor y) = 0;
  /// y = silu(gate) * up, element by element.
  virtual void swiglu(Tensor gate, Tensor up, Tensor y) = 0;
  /// Name of the kernel that linear() runs for a resident matrix and so many rows.
  [[nodiscard]] virtual std::string_view linear_name(const WeightView& w, int64_t rows) = 0;
  /// y = a + b, element by element.
  virtual void add(Tensor a, Tensor b, Tensor y) = 0;
  /// x += bias, to every row, in place.  x: [rows, columns], bias: [columns].
  virtual void add_bias(Tensor x, DeviceVector bias) = 0;
  /// The RMS norm of every head of x, [rows, heads, head_dim], in place.  weight: [head_dim].
  virtual void qk_norm(Tensor x, DeviceVector weight) = 0;
  /// Rotates every head of x, [rows, heads, head_dim], by the rows' positions, in place.
  virtual void rope(Tensor x) = 0;
  /// Writes the rows' keys and values, [rows, num_kv_heads, head_dim], into the cache at `layer`,
  /// in the cache's format.
  virtual void kv_append(int64_t layer, Tensor k, Tensor v) = 0;
  /// Causal attention of the rows over their own sequences' cache at `layer`, within its window.
  /// q, out: [rows, num_q_heads, head_dim].
  virtual void attention(int64_t layer, Tensor q, Tensor out) = 0;

  /// Fused operations, each a few kernels at most. On the CPU their numbers are those of the single
  /// operations they stand for; elsewhere they may differ by roundings of intermediate results.
  ///
  /// The first norm of a step, of the embedded tokens.
  virtual void fused_norm(const NormedInput& in) = 0;
  /// q, k and v of `in`, biases and head norms as far as `extras` has them, rotation of q and k,
  /// and kv_append.  q: [rows, num_q_heads * head_dim]; scratch: [rows, qkv_scratch_columns()].
  virtual void fused_qkv(int64_t layer, const NormedInput& in, const QkvWeights& weights,
                         Tensor scratch, Tensor q) = 0;
  /// out.residual += x W^T, and its norm.  x: [rows, w.columns].
  virtual void fused_residual(Tensor x, const WeightView& w, const NormedInput& out,
                              NormUse use) = 0;
  /// out.residual += out.normed, a product of all ranks, and the norm of the sum.
  virtual void fused_residual_sum(const NormedInput& out, NormUse use) = 0;
  /// y = silu(in Wg^T) * (in Wu^T).  scratch: [rows, gate_up_scratch_columns()].
  virtual void fused_gate_up(const NormedInput& in, const WeightView& gate, const WeightView& up,
                             Tensor scratch, Tensor y) = 0;

  /// y[i] = row sampled[i].row of x, for the step's sampled rows.  x: [rows, n], y: [sampled, n].
  virtual void gather_sampled(Tensor x, Tensor y) = 0;
  /// Chooses a token from each row of logits, row i being the step's sampled[i].
  virtual void sample(Tensor logits, const SamplingParams& params) = 0;
  /// Waits for the oldest sample() that was not fetched yet and gives its tokens, one a sampled
  /// row. At most two may be under way.
  virtual void fetch_tokens(std::span<int32_t> out) = 0;
  /// Waits until everything issued is done; tokens that were not fetched are dropped.
  virtual void wait() = 0;
  /// Waits and copies the logits into host memory as f32.  out: [logits.rows, logits.columns].
  virtual void logits_to_host(Tensor logits, std::span<float> out) = 0;
};

/// Bytes of one element of an activation.
[[nodiscard]] int64_t activation_bytes(DeviceKind device);
/// Columns of the scratch of fused_qkv for this many columns of q and of k: one device writes k and
/// v there, another q, k and v side by side.
[[nodiscard]] int64_t qkv_scratch_columns(DeviceKind device, int64_t q, int64_t k);
/// Of fused_gate_up, for this many columns of y.
[[nodiscard]] int64_t gate_up_scratch_columns(DeviceKind device, int64_t y);

}  // namespace triptych
