// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Executor: the ranks of one engine as one; runs each step on all of them.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/communicator.h"
#include "engine/engine_options.h"
#include "engine/model_runner.h"
#include "engine/rank_threads.h"
#include "engine/weights.h"

namespace triptych {

/// Rank 0 belongs to the calling thread: it samples, visits logits and reports as device 0. The
/// other ranks run the same steps beside it and report as the device of their number. At the end of
/// a step rank 0 waits for the others: a record "rank_join" of kind sync. Not for use
/// from two threads at once; the caller holds threads().busy.
class Executor {
 public:
  using Shards = std::vector<std::shared_ptr<const ModelWeights>>;

  /// One rank for each shard (make_shards()). `options.num_threads` is that of all ranks together,
  /// at least 1. Throws std::bad_alloc and std::system_error.
  Executor(Shards shards, const EngineOptions& options);

  /// Operations are reported to `sink` from now on; null turns reporting off.
  void set_sink(ActivitySink* sink);

  /// As ModelRunner::launch(). What any rank throws is thrown here, after all ranks have stopped;
  /// their caches may then differ until every slot is cleared.
  void launch(const Step& step);
  /// As ModelRunner::fetch().
  void fetch(std::span<int32_t> chosen);
  /// As ModelRunner::wait(), on every rank.
  void wait();
  /// As ModelRunner::score(); throws as launch().
  void score(const Step& step, const RowVisitor& visit);
  /// Forgets the sequence in `slot`.
  void clear(int64_t slot) noexcept;

  /// Of all ranks together: their highest since reset_peaks().
  [[nodiscard]] int64_t peak_kv_bytes() const;
  [[nodiscard]] int64_t peak_activation_bytes() const;
  void reset_peaks();

  /// As ModelRunner::linear_name(), of rank 0 and a matrix of its shard.
  [[nodiscard]] std::string_view linear_name(const WeightView& w, int64_t batch) const {
    return runners_.front()->linear_name(w, batch);
  }
  [[nodiscard]] const Shards& shards() const { return shards_; }
  [[nodiscard]] RankThreads& threads() { return *threads_; }

 private:
  void on_every_rank(const std::function<void(int rank, ModelRunner& runner)>& body);

  Shards shards_;
  std::shared_ptr<RankThreads> threads_;
  CommunicatorGroup group_;
  std::vector<std::unique_ptr<ModelRunner>> runners_;  // [rank]
  std::vector<std::exception_ptr> failures_;           // [rank], of the current step
  ActivitySink* sink_ = nullptr;
};

}  // namespace triptych
