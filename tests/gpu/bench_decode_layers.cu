// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The layers and lm_head of a decode step of Llama-3.1-8B in f16, each kernel after the one before
// it, without attention and with a context. Embedding and sampling are left out.
#include <cuda_fp16.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/strings.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/stream_linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/llama_8b.h"

namespace triptych::bench {
namespace {

using namespace llama_8b;  // NOLINT: sizes only

/// Hands out parts of the pool from its start.
class Carver {
 public:
  explicit Carver(const Bench& bench) : at_(bench.pool()), left_(bench.pool_bytes()) {}
  __half* take(int64_t elements) {
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(__half));
    if (bytes > left_) return nullptr;
    auto* const part = reinterpret_cast<__half*>(at_);
    at_ += bytes;
    left_ -= bytes;
    return part;
  }

 private:
  std::byte* at_;
  int64_t left_;
};

struct Layer {
  StreamWeight<__half> qkv, o, gate_up, down;
};

/// A batch of m sequences with one context; the weights of as many layers as the pool holds.
class Step {
 public:
  Step(const Bench& bench, int64_t m, int64_t context)
      : m_(m),
        context_(context),
        hidden_(m * kHidden),
        normed_(m * kHidden),
        q_(m * kHidden),
        attended_(m * kHidden),
        act_(m * kIntermediate),
        logits_(m * kVocab),
        norm_(upload(std::vector<__half>(kHidden, __float2half(kGain)))),
        inv_freq_(upload(rope_inverse_frequencies(500000.0, kHeadDim, {}))),
        workspace_(attention_workspace_bytes(m, kQueryHeads, kKvHeads, kHeadDim)) {
    const int64_t pages = (std::max<int64_t>(context, 1) + kPageSize - 1) / kPageSize;
    kv_elements_ = m * pages * kPageSize * kKvHeads * kHeadDim;
    std::vector<int32_t> positions, sequences, table;
    for (int64_t i = 0; i < m; ++i) {
      positions.push_back(static_cast<int32_t>(std::max<int64_t>(context - 1, 0)));
      sequences.push_back(static_cast<int32_t>(i));
    }
    for (int64_t i = 0; i < m * pages; ++i) table.push_back(static_cast<int32_t>(i));
    positions_ = upload(positions);
    sequences_ = upload(sequences);
    lengths_ = upload(std::vector<int32_t>(m, static_cast<int32_t>(context)));
    table_ = upload(table);
    page_stride_ = pages;
    for (const DeviceBuffer<__half>* x : {&hidden_, &q_, &attended_, &act_}) {
      TRIPTYCH_CUDA_CHECK(
          cudaMemcpy(x->data(), bench.pool(), x->size_bytes(), cudaMemcpyDeviceToDevice));
    }
    TRIPTYCH_CUDA_CHECK(cudaMemset(workspace_.data(), 0, workspace_.size_bytes()));
    Carver carver(bench);
    for (int64_t i = 0; i < 2 * kLayers; ++i) kv_.push_back(carver.take(kv_elements_));
    head_ = weight(carver.take(kVocab * kHidden), kVocab, kHidden);
    for (;;) {
      __half* const parts[] = {carver.take(kQkv * kHidden), carver.take(kHidden * kHidden),
                               carver.take(2 * kIntermediate * kHidden),
                               carver.take(kHidden * kIntermediate)};
      if (parts[3] == nullptr || parts[2] == nullptr) break;
      layers_.push_back({weight(parts[0], kQkv, kHidden), weight(parts[1], kHidden, kHidden),
                         weight(parts[2], 2 * kIntermediate, kHidden),
                         weight(parts[3], kHidden, kIntermediate)});
    }
  }

  [[nodiscard]] KernelCost cost() const {
    KernelCost cost = stream_linear_cost(m_, kVocab, kHidden, kVocab, 2);
    for (int64_t i = 0; i < kLayers; ++i) {
      cost += stream_linear_cost(m_, kQkv, kHidden, kQkv, 2);
      cost += stream_linear_cost(m_, kHidden, kHidden, kHidden, 2);
      cost += stream_linear_cost(m_, 2 * kIntermediate, kHidden, kIntermediate, 2);
      cost += stream_linear_cost(m_, kHidden, kIntermediate, kHidden, 2);
      if (context_ > 0) {
        cost += attention_cost(m_, m_ * context_, m_ * context_, kQueryHeads, kKvHeads, kHeadDim);
      }
    }
    return cost;
  }

  void run(cudaStream_t stream) const {
    constexpr LaunchOrder kOverlap = LaunchOrder::kOverlapPrevious;
    for (int64_t i = 0; i < kLayers; ++i) {
      const Layer& w = layer(i);
      const LaunchOrder order = i == 0 ? LaunchOrder::kAfterPrevious : kOverlap;
      const StreamInput<__half> in = norm(order, stream);
      launch_stream_qkv(qkv_args(i, in, in.norm == nullptr ? kOverlap : order), stream);
      if (context_ > 0) launch_decode_attention(attention_args(i), stream);
      launch_stream_linear(
          StreamLinearArgs<__half>{{attended_.data(), m_}, &w.o, hidden_.data(), true, kOverlap},
          stream);
      launch_stream_gate_up(
          StreamGateUpArgs<__half>{norm(kOverlap, stream), &w.gate_up, act_.data(), kOverlap},
          stream);
      launch_stream_linear(
          StreamLinearArgs<__half>{{act_.data(), m_}, &w.down, hidden_.data(), true, kOverlap},
          stream);
    }
    launch_stream_linear(
        StreamLinearArgs<__half>{norm(kOverlap, stream), &head_, logits_.data(), false, kOverlap},
        stream);
  }

 private:
  // Input of a product that takes the norm of the residual, or whose norm is made before it.
  StreamInput<__half> norm(LaunchOrder order, cudaStream_t stream) const {
    if (m_ <= kMaxNarrowStreamRows) return {hidden_.data(), m_, norm_.data(), kEps};
    RmsNormArgs<__half> args;
    args.x = hidden_.data();
    args.weight = norm_.data();
    args.y = normed_.data();
    args.num_tokens = m_;
    args.hidden_size = kHidden;
    args.eps = kEps;
    launch_rms_norm(args, stream, order);
    return {normed_.data(), m_};
  }
  static StreamWeight<__half> weight(const __half* data, int64_t n, int64_t k) {
    return make_stream_weight<__half>(data, n, k).value();
  }
  [[nodiscard]] const Layer& layer(int64_t i) const {
    return layers_[static_cast<size_t>(i) % layers_.size()];
  }
  [[nodiscard]] KvView<__half> view(int64_t layer) const {
    KvView<__half> kv;
    kv.k = kv_[static_cast<size_t>(2 * layer)];
    kv.v = kv_[static_cast<size_t>(2 * layer + 1)];
    kv.page_table = table_.data();
    kv.page_table_stride = page_stride_;
    kv.page_size = kPageSize;
    kv.num_kv_heads = kKvHeads;
    kv.head_dim = kHeadDim;
    return kv;
  }
  [[nodiscard]] StreamQkvArgs<__half> qkv_args(int64_t i, const StreamInput<__half>& input,
                                               LaunchOrder order) const {
    StreamQkvArgs<__half> args;
    args.input = input;
    args.w = &layer(i).qkv;
    args.q_out = q_.data();
    args.kv = view(i);
    args.num_q_heads = kQueryHeads;
    args.positions = positions_.data();
    args.row_sequences = sequences_.data();
    args.inv_freq = inv_freq_.data();
    args.order = order;
    return args;
  }
  [[nodiscard]] AttentionArgs<__half> attention_args(int64_t i) const {
    AttentionArgs<__half> args;
    args.q = q_.data();
    args.q_stride = kHidden;
    args.out = attended_.data();
    args.kv = view(i);
    args.num_q_heads = kQueryHeads;
    args.num_sequences = m_;
    args.kv_lengths = lengths_.data();
    args.row_starts = sequences_.data();
    args.rows = m_;
    args.max_kv_length = context_;
    args.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
    args.workspace = workspace_.data();
    args.order = LaunchOrder::kOverlapPrevious;
    return args;
  }

  int64_t m_, context_, kv_elements_ = 0, page_stride_ = 0;
  DeviceBuffer<__half> hidden_, normed_, q_, attended_, act_, logits_, norm_;
  DeviceBuffer<float> inv_freq_;
  DeviceBuffer<std::byte> workspace_;
  DeviceBuffer<int32_t> positions_, sequences_, lengths_, table_;
  std::vector<__half*> kv_;
  StreamWeight<__half> head_;
  std::vector<Layer> layers_;
};

TRIPTYCH_BENCH(decode_layers) {
  constexpr int64_t kCases[][2] = {// sequences, context
                                   {1, 0}, {1, 512}, {1, 2048}, {1, 4096}, {4, 0},   {4, 512},
                                   {8, 0}, {8, 512}, {16, 0},   {16, 512}, {32, 512}};
  for (const auto& [m, context] : kCases) {
    const Step step(bench, m, context);
    bench.row("decode layers",
              str_format("B %lld, context %lld", static_cast<long long>(m),
                         static_cast<long long>(context)),
              step.cost(), 1, [&](int64_t, cudaStream_t stream) { step.run(stream); });
  }
}

}  // namespace
}  // namespace triptych::bench
