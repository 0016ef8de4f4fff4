// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/ops_cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "engine/cuda/device_ops_cuda.h"
#include "engine/cuda/streamed_weights_cuda.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/decoder_ops.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/stream_linear.h"
#include "kernels/device_info.h"
#include "kernels/rms_norm.h"

namespace triptych {

namespace {

template <class T>
class CudaOps final : public DeviceOps {
 public:
  CudaOps(const ModelWeights& weights, const EngineOptions& options, cpu::ThreadPool& pool)
      : DeviceOps(weights, options, pool),
        config_(weights.config),
        eps_(static_cast<float>(config_.rms_norm_eps)),
        scale_(1.0f / std::sqrt(static_cast<float>(config_.head_dim))) {
    inv_freq_ = uploaded(
        rope_inverse_frequencies(config_.rope_theta, config_.head_dim, config_.rope_scaling));
    attention_workspace_ = zeroed(attention_workspace_bytes(
        options.max_batch, config_.num_q_heads, config_.num_kv_heads, config_.head_dim));
    sample_workspace_ = zeroed(sample_workspace_bytes(options.max_batch, config_.vocab_size));
    for (const LayerWeights& w : weights.layers) {
      const WeightView qkv[] = {resident(w.q), resident(w.k), resident(w.v)};
      const WeightView gate_up[] = {resident(w.gate), resident(w.up)};
      norm_rows_ = std::min({norm_rows_, streamed_(joined(qkv)).max_norm_rows,
                             streamed_(joined(gate_up)).max_norm_rows});
    }
    TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());  // the stream does not wait for the copies above
  }

  void embed(const WeightView& table, Tensor out) override {
    run(
        [&] {
          launch_embed<T>({.table = matrix(table),
                           .hidden_size = out.columns,
                           .tokens = meta().tokens,
                           .last_tokens = last_tokens_.data(),
                           .out = data(out),
                           .rows = out.rows},
                          stream());
        },
        [&] { return kernel("embed", 2 * out.bytes()); });
  }

  void rms_norm(Tensor x, DeviceVector weight, Tensor y) override {
    const RmsNormArgs<T> args{.x = data(x),
                              .weight = vector(weight),
                              .y = data(y),
                              .num_tokens = x.rows,
                              .hidden_size = x.columns,
                              .eps = eps_};
    run([&] { launch_rms_norm(args, stream(), order()); },
        [&] { return kernel("rms_norm", rms_norm_cost(args).bytes()); });
  }

  void linear(Tensor x, const WeightView& w, Tensor y) override { product(x, w, y, false); }
  std::string_view linear_name(const WeightView& w, int64_t rows) override {
    const auto& streamed = streamed_(w);
    return rows <= streamed.max_rows ? stream_linear_name(*streamed.weight, rows) : kGemmKernelName;
  }

  void swiglu(Tensor gate, Tensor up, Tensor y) override {
    swiglu_rows(data(gate), data(up), gate.columns, y);
  }
  void add(Tensor a, Tensor b, Tensor y) override {
    run([&] { launch_add<T>(data(a), data(b), data(y), y.rows * y.columns, stream()); },
        [&] { return kernel("add", 3 * y.bytes()); });
  }

  void add_bias(Tensor x, DeviceVector bias) override {
    run([&] { launch_add_bias<T>(data(x), vector(bias), x.rows, x.columns, stream()); },
        [&] { return kernel("add_bias", 2 * x.bytes() + x.row_bytes); });
  }
  void qk_norm(Tensor x, DeviceVector weight) override {
    norm_heads(data(x), x.columns, x.columns / config_.head_dim, x.rows, weight);
  }

  void rope(Tensor x) override { rotate(data(x), x.columns, x.columns / config_.head_dim, x.rows); }
  void kv_append(int64_t layer, Tensor k, Tensor v) override {
    append(layer, data(k), data(v), k.columns, k.rows);
  }

  void attention(int64_t layer, Tensor q, Tensor out) override {
    const int64_t first = step_.first_decode();
    const int64_t window = config_.window(layer);
    AttentionArgs<T> args{.q = data(q),
                          .q_stride = q.columns,
                          .out = data(out),
                          .kv = view(layer),
                          .num_q_heads = config_.num_q_heads,
                          .num_sequences = first,
                          .kv_lengths = meta().kv_lengths,
                          .row_starts = meta().row_starts,
                          .rows = step_.first_decode_row(),
                          .max_kv_length = step_.max_kv_length(),
                          .scale = scale_,
                          .window = window,
                          .workspace = attention_workspace_.data(),
                          .order = order()};
    const int64_t bytes =
        attention_cost(q.rows, step_.keys(window), step_.attended(window), config_.num_q_heads,
                       config_.num_kv_heads, config_.head_dim)
            .bytes();
    if (first > 0) {
      run([&] { launch_prefill_attention(args, stream()); },
          [&] { return kernel(prefill_attention_name(args), bytes); });
    }
    if (first == step_.sequences()) return;
    args.q += step_.first_decode_row() * q.columns;
    args.out += step_.first_decode_row() * out.columns;
    args.num_sequences = step_.sequences() - first;
    args.rows = args.num_sequences;
    args.kv_lengths += first;
    if (args.kv.page_table != nullptr) args.kv.page_table += first * args.kv.page_table_stride;
    if (args.kv.starts != nullptr) args.kv.starts += first;
    run([&] { launch_decode_attention(args, stream()); },
        [&] { return kernel(decode_attention_name(args), first > 0 ? 0 : bytes); });
  }

  void fused_norm(const NormedInput& in) override {
    if (!norms_inside(in.residual.rows)) rms_norm(in.residual, in.weight, in.normed);
  }

  void fused_qkv(int64_t layer, const NormedInput& in, const QkvWeights& weights, Tensor scratch,
                 Tensor q) override {
    const int64_t rows = q.rows;
    const WeightView parts[] = {weights.q, weights.k, weights.v};
    const WeightView all = joined(parts);
    const bool plain =
        weights.extras.q_norm == nullptr && step_.paged() && config_.head_dim % 16 == 0;
    if (plain && rows <= streamed_(all).max_rows) {
      const StreamQkvArgs<T> args{.input = input(in),
                                  .w = &*streamed_(all).weight,
                                  .bias = vector(weights.extras.q_bias),
                                  .q_out = data(q),
                                  .kv = view(layer),
                                  .num_q_heads = config_.num_q_heads,
                                  .positions = meta().positions,
                                  .row_sequences = meta().row_sequences,
                                  .inv_freq = inv_freq_.data(),
                                  .rope_kind = config_.rope_kind,
                                  .order = order()};
      run([&] { launch_stream_qkv(args, stream()); },
          [&] {
            name_ = "qkv_" + std::string(stream_linear_name(*args.w, rows));
            return kernel(name_, all.bytes() + in.residual.bytes() + scratch.bytes());
          });
      return;
    }
    fused_product(in, all, scratch);
    if (step_.paged()) {
      rope_and_append(layer, weights.extras, scratch, q);
    } else {
      rope_and_concatenate(layer, weights.extras, scratch, q);
    }
  }

  void fused_residual(Tensor x, const WeightView& w, const NormedInput& out, NormUse use) override {
    product(x, w, out.residual, true);
    finish_residual(out, use);
  }

  void fused_residual_sum(const NormedInput& out, NormUse use) override {
    add(out.residual, out.normed, out.residual);
    finish_residual(out, use);
  }

  void fused_gate_up(const NormedInput& in, const WeightView& gate, const WeightView& up,
                     Tensor scratch, Tensor y) override {
    const WeightView parts[] = {gate, up};
    const WeightView both = joined(parts);
    if (y.rows > streamed_(both).max_rows) {
      fused_product(in, both, scratch);
      swiglu_rows(data(scratch), data(scratch) + y.columns, 2 * y.columns, y);
      return;
    }
    const StreamGateUpArgs<T> args{
        .input = input(in), .w = &*streamed_(both).weight, .y = data(y), .order = order()};
    run([&] { launch_stream_gate_up(args, stream()); },
        [&] {
          name_ = "gate_up_" + std::string(stream_linear_name(*args.w, y.rows));
          return kernel(name_, both.bytes() + in.residual.bytes() + y.bytes());
        });
  }

  void gather_sampled(Tensor x, Tensor y) override {
    run(
        [&] {
          launch_gather_rows<T>(data(x), meta().sampled_rows, data(y), y.rows, y.columns, stream());
        },
        [&] {
          return Info{ActivityKind::kMemcpy, "gather_rows", 2 * y.bytes()};
        });
  }

  void sample(Tensor logits, const SamplingParams& params) override {
    const SampleArgs<T> args{.logits = data(logits),
                             .rows = logits.rows,
                             .vocab_size = logits.columns,
                             .params = params,
                             .keys = meta().sample_keys,
                             .slots = meta().sampled_slots,
                             .last_tokens = last_tokens_.data(),
                             .out = sampled_.data(),
                             .out_at = meta().tokens_at,
                             .workspace = sample_workspace_.data(),
                             .order = order()};
    run([&] { launch_sample(args, stream()); },
        [&] { return kernel(params.greedy() ? "argmax" : "sample", logits.bytes()); });
    tokens_are_chosen();
  }

  void logits_to_host(Tensor logits, std::span<float> out) override {
    const std::byte* from = nullptr;
    run([&] { from = copy_to_host(logits.data, logits.bytes()); },
        [&] {
          return Info{ActivityKind::kMemcpy, "logits_to_host", 2 * logits.bytes()};
        });
    synchronize();
    const T* const values = reinterpret_cast<const T*>(from);
    auto rows = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin * logits.columns; i < end * logits.columns; ++i) {
        out[static_cast<size_t>(i)] = static_cast<float>(values[i]);
      }
    };
    pool_.parallel_for(logits.rows, 1, rows);
  }

 private:
  static T* data(const Tensor& tensor) { return static_cast<T*>(tensor.data); }
  static const T* vector(DeviceVector weights) { return static_cast<const T*>(weights); }
  static const T* matrix(const WeightView& w) { return reinterpret_cast<const T*>(w.data); }

  /// Whether fused products of so many rows take the norm of their input themselves.
  bool norms_inside(int64_t rows) const { return rows <= norm_rows_; }

  StreamInput<T> input(const NormedInput& in) const {
    if (!norms_inside(in.residual.rows)) return {data(in.normed), in.residual.rows, nullptr, 0.0f};
    return {data(in.residual), in.residual.rows, vector(in.weight), eps_};
  }

  void product(Tensor x, const WeightView& w, Tensor y, bool accumulate) {
    if (x.rows <= streamed_(w).max_rows) {
      stream_product({data(x), x.rows, nullptr, 0.0f}, w, y, accumulate);
      return;
    }
    run(
        [&] {
          gemm_.run<T>({.x = data(x),
                        .x_stride = x.columns,
                        .w = matrix(w),
                        .y = data(y),
                        .y_stride = y.columns,
                        .m = x.rows,
                        .n = w.rows,
                        .k = w.columns,
                        .beta = accumulate ? 1.0f : 0.0f},
                       stream());
        },
        [&] {
          return kernel(kGemmKernelName, gemm_cost(x.rows, w.rows, w.columns, sizeof(T)).bytes());
        });
  }

  void stream_product(const StreamInput<T>& input, const WeightView& w, Tensor y, bool accumulate) {
    const StreamLinearArgs<T> args{.input = input,
                                   .w = &*streamed_(w).weight,
                                   .y = data(y),
                                   .accumulate = accumulate,
                                   .order = order()};
    run([&] { launch_stream_linear(args, stream()); },
        [&] {
          return kernel(stream_linear_name(*args.w, input.m),
                        stream_linear_cost(input.m, w.rows, w.columns, w.rows, sizeof(T)).bytes());
        });
  }

  /// y = in W^T, wherever the norm is taken.
  void fused_product(const NormedInput& in, const WeightView& w, Tensor y) {
    if (!norms_inside(y.rows)) return product(in.normed, w, y, false);
    stream_product(input(in), w, y, false);
  }

  void finish_residual(const NormedInput& out, NormUse use) {
    if (use == NormUse::kValues || !norms_inside(out.residual.rows)) {
      rms_norm(out.residual, out.weight, out.normed);
    }
  }

  void swiglu_rows(const T* gate, const T* up, int64_t stride, Tensor y) {
    run(
        [&] {
          launch_swiglu<T>({.gate = gate,
                            .up = up,
                            .stride = stride,
                            .y = data(y),
                            .rows = y.rows,
                            .columns = y.columns,
                            .order = order()},
                           stream());
        },
        [&] { return kernel("swiglu", 3 * y.bytes()); });
  }

  void norm_heads(T* x, int64_t stride, int64_t heads, int64_t rows, DeviceVector weight) {
    run(
        [&] {
          launch_head_norm<T>({.x = x,
                               .stride = stride,
                               .rows = rows,
                               .num_heads = heads,
                               .head_dim = config_.head_dim,
                               .weight = vector(weight),
                               .eps = eps_},
                              stream());
        },
        [&] { return kernel("qk_norm", 2 * heads_bytes(rows, heads)); });
  }

  void rotate(T* x, int64_t stride, int64_t heads, int64_t rows) {
    run(
        [&] {
          launch_rope<T>({.x = x,
                          .stride = stride,
                          .rows = rows,
                          .num_heads = heads,
                          .head_dim = config_.head_dim,
                          .positions = meta().positions,
                          .inv_freq = inv_freq_.data(),
                          .kind = config_.rope_kind},
                         stream());
        },
        [&] { return kernel("rope", 2 * heads_bytes(rows, heads)); });
  }

  void append(int64_t layer, const T* k, const T* v, int64_t stride, int64_t rows) {
    if (!step_.paged()) {
      concatenate(layer, 0, k, stride);
      concatenate(layer, 1, v, stride);
      for (const auto& group : step_.outgrown()) {
        group->release(layer, 0);
        group->release(layer, 1);
      }
      return;
    }
    run(
        [&] {
          launch_kv_append<T>({.k = k,
                               .v = v,
                               .stride = stride,
                               .rows = rows,
                               .positions = meta().positions,
                               .row_sequences = meta().row_sequences},
                              view(layer), stream());
        },
        [&] { return kernel("kv_append", 4 * heads_bytes(rows, config_.num_kv_heads)); });
  }

  /// A longer buffer of keys (which 0) or values (1): the old tokens and the new rows.
  void concatenate(int64_t layer, int which, const T* rows, int64_t stride) {
    T* const grown = reinterpret_cast<T*>(step_.group().allocate(layer, which));
    const int64_t part = (2 * layer + which) * options_.max_batch;
    run(
        [&] {
          launch_kv_concat<T>(
              {.old_sequences = reinterpret_cast<const T* const*>(meta().old_parts + part),
               .old_lengths = meta().old_lengths,
               .new_cache = grown,
               .new_starts = meta().kv_starts,
               .new_lengths = meta().kv_lengths,
               .rows = rows,
               .stride = stride,
               .row_starts = meta().row_starts,
               .num_sequences = step_.sequences(),
               .total_tokens = step_.total_tokens(),
               .num_kv_heads = config_.num_kv_heads,
               .head_dim = config_.head_dim},
              stream());
        },
        [&] {
          return Info{ActivityKind::kMemcpy, "kv_concat",
                      2 * heads_bytes(step_.total_tokens(), config_.num_kv_heads)};
        });
  }

  void rope_and_append(int64_t layer, const QkvExtras& extras, Tensor qkv, Tensor q) {
    const RopeKvAppendArgs<T> args{.qkv = data(qkv),
                                   .rows = q.rows,
                                   .bias = vector(extras.q_bias),
                                   .q_norm = vector(extras.q_norm),
                                   .k_norm = vector(extras.k_norm),
                                   .eps = eps_,
                                   .q_out = data(q),
                                   .num_q_heads = config_.num_q_heads,
                                   .kv = view(layer),
                                   .positions = meta().positions,
                                   .row_sequences = meta().row_sequences,
                                   .inv_freq = inv_freq_.data(),
                                   .kind = config_.rope_kind,
                                   .order = order()};
    run([&] { launch_rope_kv_append(args, stream()); },
        [&] { return kernel("rope_kv_append", 2 * qkv.bytes()); });
  }

  /// The same in single operations: the rows of q, k and v lie side by side in `qkv`.
  void rope_and_concatenate(int64_t layer, const QkvExtras& extras, Tensor qkv, Tensor q) {
    const int64_t q_heads = config_.num_q_heads;
    const int64_t kv_heads = config_.num_kv_heads;
    T* const k = data(qkv) + q.columns;
    T* const v = k + kv_heads * config_.head_dim;
    if (extras.q_bias != nullptr) add_bias(qkv, extras.q_bias);
    if (extras.q_norm != nullptr) {
      norm_heads(data(qkv), qkv.columns, q_heads, q.rows, extras.q_norm);
      norm_heads(k, qkv.columns, kv_heads, q.rows, extras.k_norm);
    }
    rotate(data(qkv), qkv.columns, q_heads + kv_heads, q.rows);
    append(layer, k, v, qkv.columns, q.rows);
    run(
        [&] {
          TRIPTYCH_CUDA_CHECK(cudaMemcpy2DAsync(
              q.data, static_cast<size_t>(q.row_bytes), qkv.data,
              static_cast<size_t>(qkv.row_bytes), static_cast<size_t>(q.row_bytes),
              static_cast<size_t>(q.rows), cudaMemcpyDeviceToDevice, stream()));
        },
        [&] {
          return Info{ActivityKind::kMemcpy, "copy_q", 2 * q.bytes()};
        });
  }

  KvView<T> view(int64_t layer) const {
    KvView<T> kv;
    kv.num_kv_heads = config_.num_kv_heads;
    kv.head_dim = config_.head_dim;
    if (step_.paged()) {
      const CudaPagedCache& cache = step_.paged_cache();
      kv.k = reinterpret_cast<T*>(cache.keys(layer));
      kv.v = reinterpret_cast<T*>(cache.values(layer));
      kv.page_table = meta().page_table;
      kv.page_table_stride = cache.table().pages_per_slot();
      kv.page_size = cache.table().page_size();
    } else {
      kv.k = reinterpret_cast<T*>(step_.group().data(layer, 0));
      kv.v = reinterpret_cast<T*>(step_.group().data(layer, 1));
      kv.starts = meta().kv_starts;
    }
    return kv;
  }

  int64_t heads_bytes(int64_t rows, int64_t heads) const {
    return rows * heads * config_.head_dim * static_cast<int64_t>(sizeof(T));
  }

  const ModelConfig config_;
  float eps_;
  float scale_;
  DeviceBuffer<float> inv_freq_;
  DeviceBuffer<std::byte> attention_workspace_;
  DeviceBuffer<std::byte> sample_workspace_;
  Gemm gemm_;
  StreamedWeights<T> streamed_;
  int64_t norm_rows_ = kMaxStreamRows;
  std::string name_;
};

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(const ModelWeights& weights, const EngineOptions& options,
                                   cpu::ThreadPool& pool) {
  if (weights.embed.dtype == DType::kBF16) {
    return std::make_unique<CudaOps<__nv_bfloat16>>(weights, options, pool);
  }
  return std::make_unique<CudaOps<__half>>(weights, options, pool);
}

}  // namespace triptych
