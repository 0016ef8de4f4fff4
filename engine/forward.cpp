// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/forward.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "engine/kv_cache.h"

namespace triptych {

namespace {

/// Computes nothing and holds nothing: a pass over it shows which results live at the same time.
class NoOps final : public Ops {
 public:
  explicit NoOps(DeviceKind device) : device_(device) {}
  void set_sink(ActivitySink*) override {}
  DeviceKind device() const override { return device_; }
  std::byte* allocate(int64_t) override { return nullptr; }
  void release(std::byte*, int64_t) noexcept override {}
  void copy(const std::byte*, std::byte*, int64_t, std::string_view) override {}
  std::unique_ptr<KvCache> make_cache(const KvShape&, int64_t, int64_t) override { return nullptr; }
  WeightView resident(const WeightView& weights) override { return weights; }
  DeviceVector resident(std::span<const float> weights) override { return weights.data(); }
  void begin_step(const Step&) override {}
  void embed(const WeightView&, Tensor) override {}
  void rms_norm(Tensor, DeviceVector, Tensor) override {}
  void linear(Tensor, const WeightView&, Tensor) override {}
  std::string_view linear_name(const WeightView&, int64_t) override { return ""; }
  void swiglu(Tensor, Tensor, Tensor) override {}
  void add(Tensor, Tensor, Tensor) override {}
  void add_bias(Tensor, DeviceVector) override {}
  void qk_norm(Tensor, DeviceVector) override {}
  void rope(Tensor) override {}
  void kv_append(int64_t, Tensor, Tensor) override {}
  void attention(int64_t, Tensor, Tensor) override {}
  void fused_norm(const NormedInput&) override {}
  void fused_qkv(int64_t, const NormedInput&, const QkvWeights&, Tensor, Tensor) override {}
  void fused_residual(Tensor, const WeightView&, const NormedInput&, NormUse) override {}
  void fused_residual_sum(const NormedInput&, NormUse) override {}
  void fused_gate_up(const NormedInput&, const WeightView&, const WeightView&, Tensor,
                     Tensor) override {}
  void gather_sampled(Tensor, Tensor) override {}
  void sample(Tensor, const SamplingParams&) override {}
  void fetch_tokens(std::span<int32_t>) override {}
  void wait() override {}
  void logits_to_host(Tensor, std::span<float>) override {}

 private:
  DeviceKind device_;
};

/// Null for a vector that the family does not have.
DeviceVector resident_or_null(Ops& ops, const std::vector<float>& values) {
  return values.empty() ? nullptr : ops.resident(values);
}

/// A layer that lost what its family adds would run and give other results.
void check_extras(const ModelConfig& config, const LayerWeights& w) {
  const auto fits = [](bool wanted, const std::vector<float>& values, int64_t size) {
    return static_cast<int64_t>(values.size()) == (wanted ? size : 0);
  };
  TRIPTYCH_CHECK(fits(config.qkv_bias, w.q_bias, w.q.rows) &&
                     fits(config.qkv_bias, w.k_bias, w.k.rows) &&
                     fits(config.qkv_bias, w.v_bias, w.v.rows),
                 "q, k and v have biases as the config says");
  TRIPTYCH_CHECK(fits(config.qk_norm, w.q_norm, config.head_dim) &&
                     fits(config.qk_norm, w.k_norm, config.head_dim),
                 "q and k have norms as the config says");
}
// A tied lm_head; that of a shard is a part of the table only.
bool same(const WeightView& a, const WeightView& b) { return a.data == b.data && a.rows == b.rows; }

}  // namespace

Forward::Forward(const ModelWeights& weights, ForwardShape shape, Ops& ops,
                 ActivationMemory& memory, Communicator* communicator)
    : ops_(ops),
      memory_(memory),
      communicator_(communicator),
      shape_(shape),
      hidden_size_(weights.config.hidden_size),
      vocab_size_(weights.config.vocab_size),
      embed_(ops.resident(weights.embed)),
      lm_head_(same(weights.lm_head, weights.embed) ? embed_ : ops.resident(weights.lm_head)),
      final_norm_(ops.resident(weights.final_norm)) {
  layers_.reserve(weights.layers.size());
  for (const LayerWeights& w : weights.layers) {
    check_extras(weights.config, w);
    const QkvExtras extras{.q_bias = resident_or_null(ops, w.q_bias),
                           .k_bias = resident_or_null(ops, w.k_bias),
                           .v_bias = resident_or_null(ops, w.v_bias),
                           .q_norm = resident_or_null(ops, w.q_norm),
                           .k_norm = resident_or_null(ops, w.k_norm)};
    layers_.push_back({ops.resident(w.attn_norm),
                       {ops.resident(w.q), ops.resident(w.k), ops.resident(w.v), extras},
                       ops.resident(w.o),
                       ops.resident(w.ffn_norm),
                       ops.resident(w.gate),
                       ops.resident(w.up),
                       ops.resident(w.down)});
  }
}

void Forward::begin(const Step& step) {
  for (const StepSequence& sequence : step.sequences) {
    step.cache->extend(sequence.slot, sequence.num_tokens);
  }
  ops_.begin_step(step);
}

Activation Forward::hidden(int64_t rows) {
  return shape_ == ForwardShape::kFused ? fused(rows) : op_by_op(rows);
}

Activation Forward::logits(Tensor hidden, ActivationMemory& memory) {
  Activation y = memory.allocate(hidden.rows, vocab_size_);
  if (communicator_ == nullptr) {
    ops_.linear(hidden, lm_head_, y);
    return y;
  }
  const Activation shard = memory.allocate(hidden.rows, lm_head_.rows);
  ops_.linear(hidden, lm_head_, shard);
  communicator_->all_gather(shard, y);
  return y;
}

Activation Forward::norm(Tensor x, DeviceVector weight) {
  Activation y = memory_.allocate(x.rows, x.columns);
  ops_.rms_norm(x, weight, y);
  return y;
}

Activation Forward::product(Tensor x, const WeightView& w) {
  Activation y = memory_.allocate(x.rows, w.rows);
  ops_.linear(x, w, y);
  return y;
}

// For weights that are divided by columns: each rank has a summand of the product.
Activation Forward::product_of_all_ranks(Tensor x, const WeightView& w) {
  Activation y = product(x, w);
  if (communicator_ != nullptr) communicator_->all_reduce(y);
  return y;
}

Activation Forward::op_by_op(int64_t rows) {
  Activation x = memory_.allocate(rows, hidden_size_);
  ops_.embed(embed_, x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = attention_op_by_op(static_cast<int64_t>(i), std::move(x));
    x = ffn_op_by_op(layers_[i], std::move(x));
  }
  return norm(x, final_norm_);
}

Activation Forward::attention_op_by_op(int64_t index, Activation x) {
  const Layer& layer = layers_[index];
  Activation normed = norm(x, layer.attn_norm);
  Activation q = product(normed, layer.qkv.q);
  Activation k = product(normed, layer.qkv.k);
  Activation v = product(normed, layer.qkv.v);
  normed.reset();
  if (layer.qkv.extras.q_bias != nullptr) {
    ops_.add_bias(q, layer.qkv.extras.q_bias);
    ops_.add_bias(k, layer.qkv.extras.k_bias);
    ops_.add_bias(v, layer.qkv.extras.v_bias);
  }
  if (layer.qkv.extras.q_norm != nullptr) {
    ops_.qk_norm(q, layer.qkv.extras.q_norm);
    ops_.qk_norm(k, layer.qkv.extras.k_norm);
  }
  ops_.rope(q);
  ops_.rope(k);
  ops_.kv_append(index, k, v);
  k.reset();
  v.reset();
  Activation mixed = memory_.allocate(x.tensor().rows, layer.qkv.q.rows);
  ops_.attention(index, q, mixed);
  q.reset();
  Activation o = product_of_all_ranks(mixed, layer.o);
  mixed.reset();
  Activation sum = memory_.allocate(x.tensor().rows, hidden_size_);
  ops_.add(x, o, sum);
  return sum;
}

Activation Forward::ffn_op_by_op(const Layer& layer, Activation x) {
  Activation normed = norm(x, layer.ffn_norm);
  Activation gate = product(normed, layer.gate);
  Activation up = product(normed, layer.up);
  normed.reset();
  Activation inner = memory_.allocate(x.tensor().rows, layer.gate.rows);
  ops_.swiglu(gate, up, inner);
  gate.reset();
  up.reset();
  Activation down = product_of_all_ranks(inner, layer.down);
  inner.reset();
  Activation sum = memory_.allocate(x.tensor().rows, hidden_size_);
  ops_.add(x, down, sum);
  return sum;
}

Activation Forward::fused(int64_t rows) {
  const Activation residual = memory_.allocate(rows, hidden_size_);
  ops_.embed(embed_, residual);
  Activation normed = memory_.allocate(rows, hidden_size_);
  NormedInput in{residual, layers_.front().attn_norm, normed};
  ops_.fused_norm(in);
  for (size_t i = 0; i < layers_.size(); ++i) fused_layer(i, in);
  return normed;
}

// `in` is the layer's input and, afterwards, that of the next one or the final norm.
void Forward::fused_layer(size_t index, NormedInput& in) {
  const Layer& layer = layers_[index];
  const int64_t rows = in.residual.rows;
  const DeviceKind device = ops_.device();
  Activation q = memory_.allocate(rows, layer.qkv.q.rows);
  Activation scratch =
      scratch_of(rows, qkv_scratch_columns(device, layer.qkv.q.rows, layer.qkv.k.rows));
  ops_.fused_qkv(static_cast<int64_t>(index), in, layer.qkv, scratch, q);
  scratch.reset();
  Activation mixed = memory_.allocate(rows, layer.qkv.q.rows);
  ops_.attention(static_cast<int64_t>(index), q, mixed);
  q.reset();
  in.weight = layer.ffn_norm;
  fused_residual(mixed, layer.o, in, NormUse::kFusedProducts);
  mixed.reset();
  const Activation inner = memory_.allocate(rows, layer.gate.rows);
  scratch = scratch_of(rows, gate_up_scratch_columns(device, layer.gate.rows));
  ops_.fused_gate_up(in, layer.gate, layer.up, scratch, inner);
  scratch.reset();
  const bool last = index + 1 == layers_.size();
  in.weight = last ? final_norm_ : layers_[index + 1].attn_norm;
  fused_residual(inner, layer.down, in, last ? NormUse::kValues : NormUse::kFusedProducts);
}

Activation Forward::scratch_of(int64_t rows, int64_t columns) {
  return columns == 0 ? Activation() : memory_.allocate(rows, columns);
}

void Forward::fused_residual(Tensor x, const WeightView& w, const NormedInput& out, NormUse use) {
  if (communicator_ == nullptr) return ops_.fused_residual(x, w, out, use);
  ops_.linear(x, w, out.normed);
  communicator_->all_reduce(out.normed);
  ops_.fused_residual_sum(out, use);
}

int64_t Forward::arena_bytes(const ModelWeights& weights, ForwardShape shape, DeviceKind device,
                             int64_t rows, int64_t logit_rows) {
  const int64_t element_bytes = activation_bytes(device);
  NoOps ops(device);
  ArenaPlan plan(element_bytes);
  Forward forward(weights, shape, ops, plan);
  if (shape == ForwardShape::kFused) {
    static_cast<void>(forward.fused(rows));
  } else {
    static_cast<void>(forward.op_by_op(rows));
  }
  // Beside the logits live the hidden rows, which end below the high-water mark, a copy of those
  // that the logits are made from, and a rank's part of the logits.
  const ModelConfig& config = weights.config;
  const int64_t part = weights.lm_head.rows < config.vocab_size ? weights.lm_head.rows : 0;
  int64_t bytes = plan.peak_bytes();
  for (const int64_t columns : {config.hidden_size, config.vocab_size, part}) {
    bytes += ArenaLayout::footprint(logit_rows, columns * element_bytes);
  }
  return bytes;
}

}  // namespace triptych
