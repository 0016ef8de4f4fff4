// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <functional>
#include <utility>

#include "base/units.h"

namespace triptych {

Executor::Executor(Shards shards, const EngineOptions& options)
    : shards_(std::move(shards)),
      threads_(shared_rank_threads(static_cast<int>(shards_.size()), options.num_threads)),
      group_(static_cast<int>(shards_.size()), options.all_reduce),
      failures_(shards_.size()) {
  const bool alone = shards_.size() == 1;
  for (int rank = 0; rank < group_.world_size(); ++rank) {
    runners_.push_back(std::make_unique<ModelRunner>(shards_[static_cast<size_t>(rank)], options,
                                                     threads_->pool(rank),
                                                     alone ? nullptr : &group_.communicator(rank)));
  }
}

void Executor::set_sink(ActivitySink* sink) {
  sink_ = sink;
  for (int rank = 0; rank < group_.world_size(); ++rank) {
    runners_[static_cast<size_t>(rank)]->set_sink(sink == nullptr ? nullptr : &sink->device(rank));
  }
}

void Executor::launch(const Step& step) {
  on_every_rank([&](int, ModelRunner& runner) { runner.launch(step); });
}

void Executor::fetch(std::span<int32_t> chosen) { runners_.front()->fetch(chosen); }

void Executor::wait() {
  for (const auto& runner : runners_) runner->wait();
}

void Executor::score(const Step& step, const RowVisitor& visit) {
  on_every_rank([&](int, ModelRunner& runner) { runner.score(step, visit); });
}

void Executor::clear(int64_t slot) noexcept {
  for (const auto& runner : runners_) runner->clear(slot);
}

int64_t Executor::peak_kv_bytes() const {
  int64_t bytes = 0;
  for (const auto& runner : runners_) bytes += runner->peak_kv_bytes();
  return bytes;
}

int64_t Executor::peak_activation_bytes() const {
  int64_t bytes = 0;
  for (const auto& runner : runners_) bytes += runner->peak_activation_bytes();
  return bytes;
}

void Executor::reset_peaks() {
  for (const auto& runner : runners_) runner->reset_peaks();
}

void Executor::on_every_rank(const std::function<void(int rank, ModelRunner& runner)>& body) {
  if (runners_.size() == 1) return body(0, *runners_.front());
  // A rank that fails wakes the ranks that wait for it; only the first failures are of interest.
  int64_t first_done_ns = 0;
  const auto guarded = [&](int rank) {
    try {
      body(rank, *runners_[static_cast<size_t>(rank)]);
      if (rank == 0 && sink_ != nullptr) first_done_ns = now_ns();
    } catch (const CommunicationAborted&) {
      return;
    } catch (...) {
      failures_[static_cast<size_t>(rank)] = std::current_exception();
      group_.abort();
    }
  };
  threads_->run(std::cref(guarded));
  if (first_done_ns > 0) {
    sink_->record({.kind = ActivityKind::kSync,
                   .name = "rank_join",
                   .start_ns = first_done_ns,
                   .end_ns = now_ns()});
  }
  for (std::exception_ptr& failure : failures_) {
    if (failure == nullptr) continue;
    const std::exception_ptr first = failure;
    failures_.assign(failures_.size(), nullptr);
    group_.reset();
    std::rethrow_exception(first);
  }
}

}  // namespace triptych
