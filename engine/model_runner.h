// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// ModelRunner: the weights, memory and operations of one rank; runs steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/communicator.h"
#include "engine/engine_options.h"
#include "engine/forward.h"
#include "engine/kv_cache.h"
#include "engine/ops.h"
#include "engine/sampler.h"
#include "engine/weights.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych {

/// Rows that a decode step of `batch` sequences is computed with when it is a graph: one of a few
/// sizes, so that few graphs serve every batch; at most max_batch.
[[nodiscard]] int64_t padded_batch(int64_t batch, int64_t max_batch);

/// Bound of the sequences' lengths that a graph is recorded for: a power of two from 512 on, or
/// max_sequence where that is less. Decode attention is spread over the device by it.
[[nodiscard]] int64_t kv_bucket(int64_t longest, int64_t max_sequence);

/// Logits of one row of a step; `row` counts from the step's first.
using RowVisitor = std::function<void(int64_t row, std::span<const float> logits)>;

class ModelRunner {
 public:
  /// Keeps references to `pool`, which two runners may share if they never run at the same time,
  /// and to `communicator`: null, or `weights` are the shard of its rank. Throws std::bad_alloc.
  /// DeviceError when the device fails.
  ModelRunner(std::shared_ptr<const ModelWeights> weights, const EngineOptions& options,
              cpu::ThreadPool& pool, Communicator* communicator = nullptr);
  ~ModelRunner();

  /// Operations are reported to `sink` from now on; null turns reporting off.
  void set_sink(ActivitySink* sink);

  /// Issues a step: reads its tokens into the cache and chooses the token after each sampled row.
  /// `step.cache` is ignored. Throws std::bad_alloc, DeviceError and CommunicationAborted.
  void launch(const Step& step);
  /// Waits for the oldest launch() that sampled and was not fetched yet: its tokens, in the order
  /// of its sampled rows. For rank 0 only. Throws DeviceError.
  void fetch(std::span<int32_t> chosen);
  /// Waits until everything issued is done; tokens that were not fetched are dropped. Throws
  /// DeviceError.
  void wait() { ops_->wait(); }
  /// Reads the step's tokens into the cache and visits the logits of every row, on rank 0 only.
  /// Throws as launch().
  void score(const Step& step, const RowVisitor& visit);
  /// Forgets the sequence in `slot`.
  void clear(int64_t slot) noexcept { cache_->clear(slot); }

  /// Highest bytes since reset_peaks(), counted when memory is taken; a page pool and an arena
  /// count whole.
  [[nodiscard]] int64_t peak_kv_bytes() const { return cache_->peak_bytes(); }
  [[nodiscard]] int64_t peak_activation_bytes() const { return activations_->peak_bytes(); }
  void reset_peaks();
  /// Name of the kernel that multiplies a decode step of `batch` sequences by a matrix of the
  /// weights.
  [[nodiscard]] std::string_view linear_name(const WeightView& w, int64_t batch);

  /// What the cache and the results of operations take at most, as double: the sizes are a user's.
  struct Sizes {
    double kv_bytes = 0;
    double activation_bytes = 0;
  };
  [[nodiscard]] static Sizes sizes(const ModelWeights& weights, const EngineOptions& options);

 private:
  [[nodiscard]] std::unique_ptr<ActivationMemory> make_activations();
  [[nodiscard]] std::unique_ptr<KvCache> make_cache();
  /// Issues all of a step but a choice on the host, whose logits it returns.
  [[nodiscard]] Activation issue(const Step& step);
  void choose_on_host(const Step& step, Tensor logits);
  [[nodiscard]] bool is_first() const {
    return communicator_ == nullptr || communicator_->rank() == 0;
  }

  std::shared_ptr<const ModelWeights> weights_;
  EngineOptions options_;
  Communicator* communicator_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<ActivationMemory> activations_;
  std::unique_ptr<ActivationMemory> score_logits_;
  std::unique_ptr<KvCache> cache_;
  Forward forward_;
  Sampler sampler_;
  ActivitySink* sink_ = nullptr;
  std::vector<float> score_host_;               // [kScoreRows, vocab_size], kept between steps
  std::map<GraphKey, Tensor> recorded_logits_;  // of the graph that computes them
};

/// The cache that `options` ask for.
[[nodiscard]] KvShape kv_shape(const ModelConfig& config, const EngineOptions& options);

}  // namespace triptych
