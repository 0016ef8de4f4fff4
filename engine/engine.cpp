// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "base/units.h"
#include "engine/activations.h"
#include "engine/forward.h"
#include "engine/kv_cache.h"
#include "engine/ops_cpu.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "kernels/cpu/linear.h"

namespace triptych {

namespace {

// Positions whose logits score() holds at once: enough for the matrix kernel to reuse the weights
// it reads, few enough that 64 rows of a 128k vocabulary stay at 32 MiB.
constexpr int64_t kScoreRows = 64;
// Bounds that keep every size computed here far from 2^63; no machine comes near them.
constexpr int64_t kMaxBatch = 1 << 16;
constexpr int64_t kMaxSequence = int64_t{1} << 31;
constexpr int kMaxThreads = 1024;
constexpr int64_t kMaxHeadDim = 1024;  // what the CPU's rotary kernel takes

ForwardShape forward_shape(const RuntimeFeatures& features) {
  return features.has(RuntimeFeature::kFused) ? ForwardShape::kFused : ForwardShape::kOpByOp;
}

KvShape kv_shape(const ModelConfig& config, const EngineOptions& options) {
  return {.num_layers = config.num_layers,
          .kv_columns = config.num_kv_heads * config.head_dim,
          .max_batch = options.max_batch,
          .max_sequence = options.max_sequence};
}

/// Rows of the largest step: a prompt as long as a sequence may be, or a full batch.
int64_t max_rows(const EngineOptions& options) {
  return std::max(options.max_batch, options.max_sequence);
}

/// Closes the phase on every way out, so that a trace stays well-formed.
class PhaseScope {
 public:
  PhaseScope(ActivitySink* sink, PhaseKind kind, int64_t index, int64_t tokens) : sink_(sink) {
    if (sink_ != nullptr) sink_->begin_phase(kind, index, tokens, now_ns());
  }
  ~PhaseScope() {
    if (sink_ != nullptr) sink_->end_phase(now_ns());
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  ActivitySink* sink_;
};

/// The parts of a runtime that a generation drives.
struct Runtime {
  Forward& forward;
  KvCache& cache;
  ActivationMemory& activations;
  Sampler& sampler;
  std::optional<int32_t> eos_token_id;
};

/// One call of generate(): prefills what the scheduler admits, then decodes all active sequences
/// together, one token each, until all requests are done.
class Generation {
 public:
  Generation(const Runtime& runtime, std::span<const Request> requests, BatchPolicy policy,
             int64_t max_batch, ActivitySink* sink)
      : runtime_(runtime),
        requests_(requests),
        scheduler_(policy, static_cast<int64_t>(requests.size()), max_batch),
        clients_(max_batch),
        sink_(sink) {
    size_t longest = 0;
    for (const Request& request : requests) longest = std::max(longest, request.prompt.size());
    prompt_positions_.resize(longest);
    std::iota(prompt_positions_.begin(), prompt_positions_.end(), 0);
    result_.requests.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto count = static_cast<size_t>(requests[i].max_new_tokens);
      result_.requests[i].tokens.reserve(count);
      result_.requests[i].token_ns.reserve(count);
    }
  }

  GenerateResult run() {
    result_.start_ns = now_ns();
    for (int64_t client = 0; client < clients_; ++client) submit_next(result_.start_ns);
    while (!scheduler_.done()) {
      while (const auto admission = scheduler_.admit()) prefill(*admission);
      if (!scheduler_.active().empty()) decode();
    }
    result_.end_ns = now_ns();
    return std::move(result_);
  }

 private:
  void prefill(Scheduler::Admission admission) {
    const std::vector<int32_t>& prompt = requests_[admission.request].prompt;
    const auto rows = static_cast<int64_t>(prompt.size());
    const PhaseScope phase(sink_, PhaseKind::kPrefill, admission.request, rows);
    const StepSequence sequence{admission.slot, 0, rows};
    const Step step{prompt,
                    std::span<const int32_t>(prompt_positions_).first(prompt.size()),
                    {&sequence, 1},
                    &runtime_.cache};
    batch_.assign(1, admission);
    {
      const Activation hidden = runtime_.forward.hidden(step);
      sample(hidden.tensor().slice(rows - 1, 1));
    }
    deliver();
  }

  void decode() {
    const auto active = scheduler_.active();
    batch_.assign(active.begin(), active.end());
    const auto rows = static_cast<int64_t>(batch_.size());
    const PhaseScope phase(sink_, PhaseKind::kDecode, result_.decode_steps++, rows);
    tokens_.clear();
    positions_.clear();
    sequences_.clear();
    for (const Scheduler::Admission& a : batch_) {
      const int64_t position = runtime_.cache.length(a.slot);
      tokens_.push_back(result_.requests[a.request].tokens.back());
      positions_.push_back(static_cast<int32_t>(position));
      sequences_.push_back({a.slot, position, 1});
    }
    {
      const Activation hidden =
          runtime_.forward.hidden({tokens_, positions_, sequences_, &runtime_.cache});
      sample(hidden);
    }
    deliver();
  }

  void sample(Tensor hidden) {
    const Activation logits = runtime_.forward.logits(hidden, runtime_.activations);
    sampled_.resize(static_cast<size_t>(hidden.rows));
    runtime_.sampler.sample(logits, sampled_, sink_);
  }

  /// A client's next request, if one is left.
  void submit_next(int64_t at_ns) {
    if (submitted_ < result_.requests.size()) result_.requests[submitted_++].submit_ns = at_ns;
  }

  /// Hands one token to each request of batch_ and retires those that are complete.
  void deliver() {
    const int64_t delivered_ns = now_ns();
    for (size_t i = 0; i < batch_.size(); ++i) {
      const auto [index, slot] = batch_[i];
      const Request& request = requests_[index];
      RequestResult& result = result_.requests[index];
      result.tokens.push_back(sampled_[i]);
      result.token_ns.push_back(delivered_ns);
      const bool ended = !request.ignore_eos && sampled_[i] == runtime_.eos_token_id;
      if (ended || static_cast<int64_t>(result.tokens.size()) == request.max_new_tokens) {
        scheduler_.finish(slot);
        submit_next(delivered_ns);
        runtime_.cache.clear(slot);
      }
    }
  }

  Runtime runtime_;
  std::span<const Request> requests_;
  Scheduler scheduler_;
  int64_t clients_;
  ActivitySink* sink_;
  GenerateResult result_;
  size_t submitted_ = 0;
  std::vector<int32_t> prompt_positions_;
  std::vector<Scheduler::Admission> batch_;  // the sequences of the current step
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<StepSequence> sequences_;
  std::vector<int32_t> sampled_;
};

class BuiltinEngine final : public Engine {
 public:
  BuiltinEngine(std::shared_ptr<const ModelWeights> weights, const EngineOptions& options)
      : weights_(std::move(weights)),
        options_(options),
        pool_(shared_thread_pool(options.num_threads)),
        ops_(make_cpu_ops(weights_->config, pool_->pool)),
        activations_(make_activations()),
        score_logits_(make_heap_activations(*ops_)),
        cache_(make_cache()),
        forward_(*weights_, forward_shape(options.features), *ops_, *activations_),
        sampler_(*ops_, options.features.has(RuntimeFeature::kDeviceSampling)
                            ? SamplingPlace::kDevice
                            : SamplingPlace::kHost),
        peak_kv_bytes_(cache_->peak_bytes()),
        peak_activation_bytes_(activations_->peak_bytes()) {}

  Result<GenerateResult> generate(std::span<const Request> requests, ActivitySink* sink) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      TRIPTYCH_RETURN_IF_ERROR(check_request(requests[i], i));
    }
    const BatchPolicy policy = options_.features.has(RuntimeFeature::kContinuousBatching)
                                   ? BatchPolicy::kContinuous
                                   : BatchPolicy::kStatic;
    const Turn turn(*this, sink);
    cache_->reset_peak();
    activations_->reset_peak();
    try {
      Generation generation(
          {forward_, *cache_, *activations_, sampler_, weights_->config.eos_token_id}, requests,
          policy, options_.max_batch, sink);
      GenerateResult result = generation.run();
      peak_kv_bytes_ = std::max(peak_kv_bytes_, cache_->peak_bytes());
      peak_activation_bytes_ = std::max(peak_activation_bytes_, activations_->peak_bytes());
      return result;
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    }
  }

  Status score(std::span<const int32_t> tokens, int64_t prefill_tokens,
               const LogitsVisitor& visit) override {
    TRIPTYCH_RETURN_IF_ERROR(check_tokens(tokens, "tokens"));
    const auto rows = static_cast<int64_t>(tokens.size());
    if (rows > options_.max_sequence) return too_long("tokens", rows, 0);
    if (prefill_tokens < 1 || prefill_tokens > rows) {
      return fail(ErrorCode::kInvalidArgument,
                  str_format("prefill_tokens is %lld, expected 1 to %lld",
                             static_cast<long long>(prefill_tokens), static_cast<long long>(rows)));
    }
    const Turn turn(*this, nullptr);
    try {
      score_step(tokens, 0, prefill_tokens, visit);
      for (int64_t row = prefill_tokens; row < rows; ++row) score_step(tokens, row, 1, visit);
      return {};
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    }
  }

  // What score() needs for itself is not part of a stack's cost, so only generate() sets peaks.
  EngineMemory memory() const override {
    return {.weight_bytes = weights_->bytes(),
            .peak_kv_bytes = peak_kv_bytes_,
            .peak_activation_bytes = peak_activation_bytes_};
  }

  KernelCost decode_step_cost(int64_t batch, int64_t context) const override {
    const ModelConfig& c = weights_->config;
    const int64_t kv_token = kv_shape(c, options_).token_bytes();
    const int64_t embed_row = row_bytes(weights_->embed.dtype, weights_->embed.columns);
    // The embedding table is looked up, not multiplied; a tied one is multiplied as the lm_head.
    int64_t multiplied = weights_->lm_head.rows * weights_->lm_head.columns;
    for (const LayerWeights& w : weights_->layers) {
      for (const WeightView* m : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down}) {
        multiplied += m->rows * m->columns;
      }
    }
    const int64_t attended = c.attended_tokens(context);  // summed over the layers
    const int64_t attention = 4 * attended * c.num_q_heads * c.head_dim;
    return {.bytes_read = weights_->bytes_per_decode_step() +
                          batch * (embed_row + attended * (kv_token / c.num_layers)),
            .bytes_written = batch * kv_token,
            .flops = batch * (2 * multiplied + attention)};
  }

  std::string kernel_choice(int64_t batch) const override {
    constexpr std::array<std::pair<const char*, WeightView LayerWeights::*>, 7> kMatrices = {
        {{"q", &LayerWeights::q},
         {"k", &LayerWeights::k},
         {"v", &LayerWeights::v},
         {"o", &LayerWeights::o},
         {"gate", &LayerWeights::gate},
         {"up", &LayerWeights::up},
         {"down", &LayerWeights::down}}};
    std::string text;
    for (const auto& [name, member] : kMatrices) {
      std::vector<std::string> kernels;  // more than one if the layers' types differ
      for (const LayerWeights& layer : weights_->layers) {
        std::string kernel(cpu::linear_kernel_name((layer.*member).dtype, batch));
        if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) {
          kernels.push_back(std::move(kernel));
        }
      }
      text += std::string(name) + "=" + join(kernels, ",") + " ";
    }
    return text + "lm_head=" + std::string(cpu::linear_kernel_name(weights_->lm_head.dtype, batch));
  }

  const EngineOptions& options() const override { return options_; }

 private:
  /// The engine's turn on the shared threads. Leaves every slot empty and the sink unset.
  class Turn {
   public:
    Turn(BuiltinEngine& engine, ActivitySink* sink) : engine_(engine), lock_(engine.pool_->busy) {
      engine_.ops_->set_sink(sink);
    }
    ~Turn() {
      engine_.ops_->set_sink(nullptr);
      for (int64_t slot = 0; slot < engine_.options_.max_batch; ++slot) engine_.cache_->clear(slot);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    BuiltinEngine& engine_;
    std::lock_guard<std::mutex> lock_;
  };

  /// Reads tokens [first, first + rows) in one pass over slot 0 and visits their logits.
  void score_step(std::span<const int32_t> tokens, int64_t first, int64_t rows,
                  const LogitsVisitor& visit) {
    std::vector<int32_t> positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    const StepSequence sequence{0, first, rows};
    const Activation hidden =
        forward_.hidden({tokens.subspan(first, rows), positions, {&sequence, 1}, cache_.get()});
    const int64_t vocab_size = weights_->config.vocab_size;
    std::vector<float> host(static_cast<size_t>(std::min(rows, kScoreRows) * vocab_size));
    for (int64_t row = 0; row < rows; row += kScoreRows) {
      const int64_t count = std::min(kScoreRows, rows - row);
      const Activation logits = forward_.logits(hidden.tensor().slice(row, count), *score_logits_);
      ops_->logits_to_host(logits, std::span(host).first(count * vocab_size));
      for (int64_t i = 0; i < count; ++i) {
        visit(first + row + i, std::span<const float>(host).subspan(i * vocab_size, vocab_size));
      }
    }
  }

  std::unique_ptr<ActivationMemory> make_activations() {
    if (!options_.features.has(RuntimeFeature::kArena)) return make_heap_activations(*ops_);
    return make_arena_activations(
        *ops_, Forward::arena_bytes(*weights_, forward_shape(options_.features),
                                    ops_->element_bytes(), max_rows(options_), options_.max_batch));
  }

  std::unique_ptr<KvCache> make_cache() {
    const KvShape shape = kv_shape(weights_->config, options_);
    if (options_.features.has(RuntimeFeature::kPagedKv)) {
      return std::make_unique<PagedKvCache>(*ops_, shape, options_.page_size);
    }
    return std::make_unique<ContiguousKvCache>(*ops_, shape);
  }

  Status check_tokens(std::span<const int32_t> tokens, const std::string& what) const {
    if (tokens.empty()) {
      return fail(ErrorCode::kInvalidArgument, what + ": empty, expected at least one token");
    }
    const int64_t vocab_size = weights_->config.vocab_size;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= vocab_size) {
        return fail(ErrorCode::kInvalidArgument,
                    what + str_format(": token %zu is %d, expected 0 to %lld", i, tokens[i],
                                      static_cast<long long>(vocab_size - 1)));
      }
    }
    return {};
  }

  Status check_request(const Request& request, size_t index) const {
    const std::string what = "request " + std::to_string(index);
    TRIPTYCH_RETURN_IF_ERROR(check_tokens(request.prompt, what + ": prompt"));
    if (request.max_new_tokens < 1) {
      return fail(ErrorCode::kInvalidArgument, what + ": max_new_tokens is " +
                                                   std::to_string(request.max_new_tokens) +
                                                   ", expected at least 1");
    }
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    if (request.max_new_tokens > options_.max_sequence - prompt) {
      return too_long(what, prompt, request.max_new_tokens);
    }
    return {};
  }

  Unexpected too_long(const std::string& what, int64_t prompt, int64_t output) const {
    return fail(ErrorCode::kOutOfMemory,
                what + str_format(": %lld prompt + %lld output tokens, but the engine was made "
                                  "for sequences of at most %lld",
                                  static_cast<long long>(prompt), static_cast<long long>(output),
                                  static_cast<long long>(options_.max_sequence)));
  }

  static Unexpected out_of_memory() {
    return fail(ErrorCode::kOutOfMemory, "the operating system gave no more memory");
  }

  std::shared_ptr<const ModelWeights> weights_;
  EngineOptions options_;
  std::shared_ptr<SharedThreadPool> pool_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<ActivationMemory> activations_;
  std::unique_ptr<ActivationMemory> score_logits_;
  std::unique_ptr<KvCache> cache_;
  Forward forward_;
  Sampler sampler_;
  int64_t peak_kv_bytes_;
  int64_t peak_activation_bytes_;
};

Status check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::kInvalidArgument,
              str_format("%s is %lld, expected %lld to %lld", name, static_cast<long long>(value),
                         static_cast<long long>(low), static_cast<long long>(high)));
}

Status check_options(const ModelConfig& config, const EngineOptions& options) {
  if (options.device != DeviceKind::kCpu) {
    return fail(ErrorCode::kUnsupported, "the built-in engine runs on the CPU only");
  }
  if (options.features.has(RuntimeFeature::kGraph)) {
    return fail(ErrorCode::kUnsupported, "runtime feature 'graph' is not available on the CPU");
  }
  if (options.kv != KvFormat::kF16) {
    return fail(ErrorCode::kUnsupported, "the CPU's KV cache is f16 only");
  }
  if (config.head_dim > kMaxHeadDim) {
    return fail(
        ErrorCode::kUnsupported,
        str_format("head_dim is %lld, the CPU's kernels take at most %lld",
                   static_cast<long long>(config.head_dim), static_cast<long long>(kMaxHeadDim)));
  }
  TRIPTYCH_RETURN_IF_ERROR(check_range("num_threads", options.num_threads, 0, kMaxThreads));
  TRIPTYCH_RETURN_IF_ERROR(check_range("max_batch", options.max_batch, 1, kMaxBatch));
  TRIPTYCH_RETURN_IF_ERROR(check_range("max_sequence", options.max_sequence, 1, kMaxSequence - 1));
  TRIPTYCH_RETURN_IF_ERROR(check_range("page_size", options.page_size, 1, kMaxSequence - 1));
  if (options.max_sequence > config.max_position) {
    return fail(ErrorCode::kUnsupported,
                str_format("max_sequence is %lld, but %s knows positions below %lld only",
                           static_cast<long long>(options.max_sequence), config.name.c_str(),
                           static_cast<long long>(config.max_position)));
  }
  return {};
}

/// Whether the engine at its fullest fits the machine, so that it fails with arithmetic and not in
/// the hands of the kernel's out-of-memory killer. In double: the sizes are the user's.
Status check_memory(const ModelWeights& weights, const EngineOptions& options) {
  const KvShape shape = kv_shape(weights.config, options);
  const bool paged = options.features.has(RuntimeFeature::kPagedKv);
  const int64_t unit = paged ? options.page_size : 1;
  const double tokens =
      static_cast<double>((options.max_sequence + unit - 1) / unit) * static_cast<double>(unit);
  const double kv =
      static_cast<double>(options.max_batch) * tokens * static_cast<double>(shape.token_bytes());
  const ForwardShape forward = forward_shape(options.features);
  const int64_t row = Forward::arena_bytes(weights, forward, sizeof(float), 1, 0);
  const int64_t logits = Forward::arena_bytes(weights, forward, sizeof(float), 1, 1) - row;
  const double activations = static_cast<double>(max_rows(options)) * static_cast<double>(row) +
                             static_cast<double>(options.max_batch) * static_cast<double>(logits);
  const auto needed = static_cast<double>(weights.bytes()) + kv + activations;
  const auto physical =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed <= physical) return {};
  return fail(ErrorCode::kOutOfMemory,
              "weights " + format_bytes(static_cast<double>(weights.bytes())) + " + KV cache " +
                  format_bytes(kv) + " + activations " + format_bytes(activations) +
                  " exceed the machine's " + format_bytes(physical));
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(std::shared_ptr<const ModelWeights> weights,
                                            const EngineOptions& options) {
  TRIPTYCH_CHECK(weights != nullptr && !weights->layers.empty(), "an engine needs a model");
  TRIPTYCH_RETURN_IF_ERROR(check_options(weights->config, options));
  TRIPTYCH_RETURN_IF_ERROR(check_memory(*weights, options));
  EngineOptions resolved = options;
  if (resolved.num_threads == 0) resolved.num_threads = cpu::available_cores();
  try {
    return std::unique_ptr<Engine>(std::make_unique<BuiltinEngine>(std::move(weights), resolved));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "the operating system gave no memory for the engine");
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kOutOfMemory,
                str_format("cannot start %d threads: %s", resolved.num_threads, error.what()));
  }
}

}  // namespace triptych
