// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "engine/activations.h"
#include "engine/device.h"
#include "kernels/device_error.h"

namespace triptych {

namespace {

// Positions whose logits score() holds at once: enough for the matrix kernel to reuse the weights
// it reads, few enough that 64 rows of a 128k vocabulary stay at 32 MiB.
constexpr int64_t kScoreRows = 64;

ForwardShape forward_shape(const RuntimeFeatures& features) {
  return features.has(RuntimeFeature::kFused) ? ForwardShape::kFused : ForwardShape::kOpByOp;
}

bool contiguous(std::span<const SampledRow> rows) {
  return rows.back().row - rows.front().row + 1 == static_cast<int64_t>(rows.size());
}

/// One new token of every sequence, and a choice after each: what a graph can stand for.
bool is_decode(const Step& step) {
  return step.sampled.size() == step.sequences.size() &&
         step.tokens.size() == step.sequences.size();
}

}  // namespace

int64_t padded_batch(int64_t batch, int64_t max_batch) {
  int64_t size = 1;
  while (size < batch) size += size < 8 ? size : size < 32 ? 8 : 16;
  return std::min(size, std::max(batch, max_batch));
}

int64_t kv_bucket(int64_t longest, int64_t max_sequence) {
  int64_t bound = 512;
  while (bound < longest) bound *= 2;
  return std::min(bound, max_sequence);
}

KvShape kv_shape(const ModelConfig& config, const EngineOptions& options) {
  return {.num_layers = config.num_layers,
          .kv_columns = config.num_kv_heads * config.head_dim,
          .max_batch = options.max_batch,
          .max_sequence = options.max_sequence};
}

ModelRunner::ModelRunner(std::shared_ptr<const ModelWeights> weights, const EngineOptions& options,
                         cpu::ThreadPool& pool, Communicator* communicator)
    : weights_(std::move(weights)),
      options_(options),
      communicator_(communicator),
      ops_(make_ops(*weights_, options_, pool)),
      activations_(make_activations()),
      score_logits_(make_heap_activations(*ops_)),
      cache_(make_cache()),
      forward_(*weights_, forward_shape(options.features), *ops_, *activations_, communicator),
      sampler_(*ops_,
               options.features.has(RuntimeFeature::kDeviceSampling) ? SamplingPlace::kDevice
                                                                     : SamplingPlace::kHost,
               options.sampling, pool) {}

// What the last step still holds of the cache goes before the cache does.
ModelRunner::~ModelRunner() {
  try {
    ops_->wait();
  } catch (const DeviceError&) {  // the device is lost, and with it all that it held
    return;
  }
}

void ModelRunner::set_sink(ActivitySink* sink) {
  sink_ = sink;
  ops_->set_sink(sink);
  if (communicator_ != nullptr) communicator_->set_sink(sink);
}

void ModelRunner::launch(const Step& given) {
  Step step = given;
  step.cache = cache_.get();
  const bool recorded = options_.features.has(RuntimeFeature::kGraph) && is_decode(step);
  if (recorded) {
    int64_t longest = 0;
    for (const StepSequence& s : step.sequences) longest = std::max(longest, s.first_position + 1);
    step.padded_rows = padded_batch(step.rows(), options_.max_batch);
    step.kv_bound = kv_bucket(longest, options_.max_sequence);
  }
  forward_.begin(step);
  if (!recorded) {
    const Activation logits = issue(step);
    return choose_on_host(step, logits);
  }
  // The arena is free again when the body ends, but nothing is written to it before the logits of
  // the graph are read.
  const GraphKey key{step.padded_rows, step.kv_bound};
  ops_->run_recorded(key, [&] { recorded_logits_[key] = issue(step).tensor(); });
  choose_on_host(step, recorded_logits_[key]);
}

void ModelRunner::choose_on_host(const Step& step, Tensor logits) {
  if (logits.data == nullptr || !is_first()) return;
  const auto count = static_cast<int64_t>(step.sampled.size());
  sampler_.sample(logits.slice(0, count), step.sampled, sink_);
}

Activation ModelRunner::issue(const Step& step) {
  const Activation hidden = forward_.hidden(step.rows());
  if (step.sampled.empty()) return {};
  Tensor wanted = hidden.tensor();
  Activation gathered;
  if (!is_decode(step)) {
    const auto count = static_cast<int64_t>(step.sampled.size());
    if (contiguous(step.sampled)) {
      wanted = wanted.slice(step.sampled.front().row, count);
    } else {
      gathered = activations_->allocate(count, wanted.columns);
      ops_->gather_sampled(wanted, gathered);
      wanted = gathered;
    }
  }
  Activation logits = forward_.logits(wanted, *activations_);
  if (sampler_.place() == SamplingPlace::kHost) return logits;
  if (is_first()) sampler_.sample(logits, step.sampled, sink_);
  return {};
}

void ModelRunner::fetch(std::span<int32_t> chosen) { sampler_.fetch(chosen); }

void ModelRunner::score(const Step& step, const RowVisitor& visit) {
  forward_.begin({step.tokens, step.positions, step.sequences, {}, cache_.get()});
  const Activation hidden = forward_.hidden(step.rows());
  const int64_t vocab_size = weights_->config.vocab_size;
  const int64_t rows = step.rows();
  if (is_first()) {
    score_host_.resize(static_cast<size_t>(std::min(rows, kScoreRows) * vocab_size));
  }
  for (int64_t first = 0; first < rows; first += kScoreRows) {
    const int64_t count = std::min(kScoreRows, rows - first);
    const Activation logits = forward_.logits(hidden.tensor().slice(first, count), *score_logits_);
    if (!is_first()) continue;
    const std::span<float> host = std::span(score_host_).first(count * vocab_size);
    ops_->logits_to_host(logits, host);
    for (int64_t i = 0; i < count; ++i) {
      visit(first + i, std::span<const float>(host).subspan(i * vocab_size, vocab_size));
    }
  }
}

std::string_view ModelRunner::linear_name(const WeightView& w, int64_t batch) {
  const bool padded = options_.features.has(RuntimeFeature::kGraph);
  const int64_t rows = padded ? padded_batch(batch, options_.max_batch) : batch;
  return ops_->linear_name(ops_->resident(w), rows);
}

void ModelRunner::reset_peaks() {
  cache_->reset_peak();
  activations_->reset_peak();
}

std::unique_ptr<ActivationMemory> ModelRunner::make_activations() {
  if (!options_.features.has(RuntimeFeature::kArena)) return make_heap_activations(*ops_);
  return make_arena_activations(
      *ops_, Forward::arena_bytes(*weights_, forward_shape(options_.features), options_.device,
                                  options_.max_rows(), options_.max_batch));
}

std::unique_ptr<KvCache> ModelRunner::make_cache() {
  const bool paged = options_.features.has(RuntimeFeature::kPagedKv);
  return ops_->make_cache(kv_shape(weights_->config, options_), paged ? options_.page_size : 0,
                          paged ? options_.kv_pages() : 0);
}

// Products of sizes that a user may choose at will are formed in double: they may exceed 2^63.
ModelRunner::Sizes ModelRunner::sizes(const ModelWeights& weights, const EngineOptions& options) {
  const auto unit = static_cast<double>(options.kv_page_size());
  const auto token = static_cast<double>(kv_shape(weights.config, options).token_bytes());
  double pages = static_cast<double>(options.max_batch) *
                 (static_cast<double>(options.max_sequence) / unit + 1);
  if (options.kv_cache_tokens > 0) {
    pages = std::min(pages, static_cast<double>(options.kv_cache_tokens) / unit + 1);
  }
  const ForwardShape shape = forward_shape(options.features);
  const int64_t row = Forward::arena_bytes(weights, shape, options.device, 1, 0);
  const int64_t logits = Forward::arena_bytes(weights, shape, options.device, 1, 1) - row;
  return {.kv_bytes = pages * unit * token,
          .activation_bytes = static_cast<double>(options.max_rows()) * static_cast<double>(row) +
                              static_cast<double>(options.max_batch) * static_cast<double>(logits)};
}

}  // namespace triptych
