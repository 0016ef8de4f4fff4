// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "engine/device.h"
#include "engine/executor.h"
#include "engine/generation.h"
#include "engine/memory_need.h"
#include "engine/model_runner.h"
#include "engine/shard.h"
#include "engine/step_cost.h"
#include "kernels/device_error.h"

namespace triptych {

namespace {

// Bounds that keep every size computed here far from 2^63; no machine comes near them.
constexpr int64_t kMaxBatch = 1 << 16;
constexpr int64_t kMaxSequence = int64_t{1} << 31;
constexpr int kMaxThreads = 1024;
constexpr int kMaxTensorParallel = 64;

int64_t weight_bytes(const Executor::Shards& shards) {
  int64_t bytes = 0;
  for (const auto& shard : shards) bytes += shard->bytes();
  return bytes;
}

/// What a device call says that failed: memory that an engine with this need cannot have, or that
/// the device is lost.
Unexpected device_failure(const DeviceError& error, const MemoryNeed& need) {
  if (!error.out_of_memory()) return fail(ErrorCode::kDeviceLost, error.what());
  return fail(ErrorCode::kOutOfMemory, error.text() + "; the engine needs " + need.to_string());
}

class BuiltinEngine final : public Engine {
 public:
  BuiltinEngine(std::shared_ptr<const ModelWeights> weights, Executor::Shards shards,
                const EngineOptions& options)
      : weights_(std::move(weights)),
        options_(options),
        executor_(std::move(shards), options),
        peak_kv_bytes_(executor_.peak_kv_bytes()),
        peak_activation_bytes_(executor_.peak_activation_bytes()) {}

  Result<GenerateResult> generate(std::span<const Request> requests, ActivitySink* sink) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      TRIPTYCH_RETURN_IF_ERROR(check_request(requests[i], i));
    }
    const Turn turn(*this, sink);
    executor_.reset_peaks();
    try {
      GenerateResult result =
          run_generation(executor_, options_, requests, weights_->config.eos_token_id, sink);
      executor_.wait();  // what a last step that nobody needs does wrong is this engine's, too
      peak_kv_bytes_ = std::max(peak_kv_bytes_, executor_.peak_kv_bytes());
      peak_activation_bytes_ = std::max(peak_activation_bytes_, executor_.peak_activation_bytes());
      return result;
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    } catch (const DeviceError& error) {
      return device_failure(error, memory_need(executor_.shards(), options_));
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
      const int64_t chunk = options_.max_rows();  // what generate() would read at once
      for (int64_t row = 0; row < prefill_tokens; row += chunk) {
        score_step(tokens, row, std::min(chunk, prefill_tokens - row), visit);
      }
      for (int64_t row = prefill_tokens; row < rows; ++row) score_step(tokens, row, 1, visit);
      return {};
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    } catch (const DeviceError& error) {
      return device_failure(error, memory_need(executor_.shards(), options_));
    }
  }

  // What score() needs for itself is not part of a stack's cost, so only generate() sets peaks.
  EngineMemory memory() const override {
    return {.weight_bytes = weight_bytes(executor_.shards()),
            .peak_kv_bytes = peak_kv_bytes_,
            .peak_activation_bytes = peak_activation_bytes_};
  }

  KernelCost decode_step_cost(int64_t batch, int64_t context) const override {
    KernelCost sum;
    for (const auto& shard : executor_.shards()) {
      const KernelCost cost = step_cost(*shard, options_, batch, context);
      sum.bytes_read += cost.bytes_read;
      sum.bytes_written += cost.bytes_written;
      sum.flops += cost.flops;
    }
    return sum;
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
    const ModelWeights& shard = *executor_.shards().front();
    std::string text;
    for (const auto& [name, member] : kMatrices) {
      std::vector<std::string> kernels;  // more than one if the layers' types differ
      for (const LayerWeights& layer : shard.layers) {
        std::string kernel(executor_.linear_name(layer.*member, batch));
        if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) {
          kernels.push_back(std::move(kernel));
        }
      }
      text += std::string(name) + "=" + join(kernels, ",") + " ";
    }
    return text + "lm_head=" + std::string(executor_.linear_name(shard.lm_head, batch));
  }

  const EngineOptions& options() const override { return options_; }

 private:
  /// The engine's turn on the shared threads. Leaves every slot empty and the sink unset.
  class Turn {
   public:
    Turn(BuiltinEngine& engine, ActivitySink* sink)
        : engine_(engine), lock_(engine.executor_.threads().busy) {
      engine_.executor_.set_sink(sink);
    }
    ~Turn() {
      engine_.end_turn();
      for (int64_t slot = 0; slot < engine_.options_.max_batch; ++slot)
        engine_.executor_.clear(slot);
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
    executor_.score(
        {tokens.subspan(first, rows), positions, {&sequence, 1}},
        [&](int64_t row, std::span<const float> logits) { visit(first + row, logits); });
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
    if (request.arrival_ns && *request.arrival_ns < 0) {
      return fail(ErrorCode::kInvalidArgument,
                  what + str_format(": arrival_ns is %lld, expected at least 0",
                                    static_cast<long long>(*request.arrival_ns)));
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

  /// Nothing of this turn is left under way. A device that is lost cannot wait; whoever called has
  /// its error already.
  void end_turn() noexcept {
    executor_.set_sink(nullptr);
    try {
      executor_.wait();
    } catch (const DeviceError&) {
      return;
    }
  }

  static Unexpected out_of_memory() {
    return fail(ErrorCode::kOutOfMemory, "there is no more memory");
  }

  std::shared_ptr<const ModelWeights> weights_;
  EngineOptions options_;
  Executor executor_;
  int64_t peak_kv_bytes_;
  int64_t peak_activation_bytes_;
};

Status check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::kInvalidArgument,
              str_format("%s is %lld, expected %lld to %lld", name, static_cast<long long>(value),
                         static_cast<long long>(low), static_cast<long long>(high)));
}

}  // namespace

Status check_engine_options(const ModelConfig& config, const EngineOptions& options) {
  TRIPTYCH_RETURN_IF_ERROR(RuntimeFeatures::parse(options.features.to_string(), options.device));
  if (options.kv != KvFormat::kF16) {
    return fail(ErrorCode::kUnsupported, "the KV cache has 16 bits an element only");
  }
  TRIPTYCH_RETURN_IF_ERROR(check_range("num_threads", options.num_threads, 0, kMaxThreads));
  TRIPTYCH_RETURN_IF_ERROR(
      check_range("tensor_parallel", options.tensor_parallel, 1, kMaxTensorParallel));
  TRIPTYCH_RETURN_IF_ERROR(check_range("max_batch", options.max_batch, 1, kMaxBatch));
  TRIPTYCH_RETURN_IF_ERROR(check_range("max_sequence", options.max_sequence, 1, kMaxSequence - 1));
  TRIPTYCH_RETURN_IF_ERROR(
      check_range("prefill_chunk", options.prefill_chunk, 1, kMaxSequence - 1));
  TRIPTYCH_RETURN_IF_ERROR(
      check_range("kv_cache_tokens", options.kv_cache_tokens, 0, kMaxBatch * kMaxSequence));
  TRIPTYCH_RETURN_IF_ERROR(check_range("page_size", options.page_size, 1, kMaxSequence - 1));
  if (options.max_sequence > config.max_position) {
    return fail(ErrorCode::kUnsupported,
                str_format("max_sequence is %lld, but %s knows positions below %lld only",
                           static_cast<long long>(options.max_sequence), config.name.c_str(),
                           static_cast<long long>(config.max_position)));
  }
  if (options.kv_pages() * options.kv_page_size() < options.max_sequence) {
    return fail(ErrorCode::kOutOfMemory,
                str_format("kv_cache_tokens is %lld, which is room for %lld, but one sequence may "
                           "have %lld tokens",
                           static_cast<long long>(options.kv_cache_tokens),
                           static_cast<long long>(options.kv_pages() * options.kv_page_size()),
                           static_cast<long long>(options.max_sequence)));
  }
  return {};
}

Result<std::unique_ptr<Engine>> make_engine(std::shared_ptr<const ModelWeights> weights,
                                            const EngineOptions& options) {
  TRIPTYCH_CHECK(weights != nullptr && !weights->layers.empty(), "an engine needs a model");
  TRIPTYCH_RETURN_IF_ERROR(check_engine_options(weights->config, options));
  TRIPTYCH_RETURN_IF_ERROR(check_device(*weights, options));
  EngineOptions resolved = options;
  if (resolved.num_threads == 0) resolved.num_threads = cpu::available_cores();
  MemoryNeed need;
  try {
    TRIPTYCH_TRY(Executor::Shards shards, make_shards(weights, options.tensor_parallel));
    resolved = fit_kv_budget(shards, resolved);
    need = memory_need(shards, resolved);
    TRIPTYCH_RETURN_IF_ERROR(check_memory(need, memory_limit_bytes(resolved), resolved.device));
    return std::unique_ptr<Engine>(
        std::make_unique<BuiltinEngine>(std::move(weights), std::move(shards), resolved));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "there is no memory for the engine");
  } catch (const DeviceError& error) {
    return device_failure(error, need);
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kOutOfMemory,
                str_format("cannot start %d threads: %s",
                           std::max(resolved.num_threads, resolved.tensor_parallel), error.what()));
  }
}

}  // namespace triptych
