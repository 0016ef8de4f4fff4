// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace triptych {

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      taken_(static_cast<size_t>(options.max_batch)),
      free_pages_(options.num_pages) {
  running_.reserve(taken_.size());
  plan_.slices.reserve(taken_.size());
}

void Scheduler::submit(int64_t request, int64_t prompt_tokens, int64_t max_new_tokens) {
  const int64_t most = prompt_tokens + max_new_tokens;
  TRIPTYCH_CHECK(pages(most) <= options_.num_pages, "a request that can never run");
  waiting_.push_back({.request = request, .tokens = prompt_tokens, .max_tokens = most});
}

std::vector<Scheduler::Sequence>::iterator Scheduler::find(int64_t slot) {
  const auto it = std::find_if(running_.begin(), running_.end(),
                               [&](const Sequence& s) { return s.slot == slot; });
  TRIPTYCH_CHECK(it != running_.end(), "a slot that no sequence runs in");
  return it;
}

int64_t Scheduler::pages_at_admission(const Sequence& sequence) const {
  return pages(options_.kv == KvPolicy::kReserve ? sequence.max_tokens : sequence.tokens + 1);
}

bool Scheduler::may_admit() {
  if (waiting_.empty() || num_running() == options_.max_batch) return false;
  if (options_.batch == BatchPolicy::kStatic && !waiting_.front().readmit) {
    if (running_.empty() && group_left_ == 0) {
      group_left_ = std::min(options_.max_batch, num_waiting());
    }
    if (group_left_ == 0) return false;
  }
  return pages_at_admission(waiting_.front()) <= free_pages_;
}

Scheduler::Sequence& Scheduler::admit() {
  Sequence sequence = waiting_.front();
  waiting_.pop_front();
  sequence.slot = std::find(taken_.begin(), taken_.end(), false) - taken_.begin();
  sequence.pages = pages_at_admission(sequence);
  if (!sequence.readmit) group_left_ = std::max<int64_t>(group_left_ - 1, 0);
  free_pages_ -= sequence.pages;
  taken_[sequence.slot] = true;
  running_.push_back(sequence);
  return running_.back();
}

void Scheduler::preempt_last() {
  Sequence sequence = running_.back();
  running_.pop_back();
  plan_.preempted.push_back({sequence.request, sequence.slot});
  taken_[sequence.slot] = false;
  free_pages_ += sequence.pages;
  sequence.slot = -1;
  sequence.cached = 0;
  sequence.pages = 0;
  sequence.decoding = false;
  sequence.readmit = true;
  waiting_.push_front(sequence);
}

void Scheduler::plan_prompt(Sequence& sequence, int64_t most) {
  const int64_t count = std::min(most, sequence.tokens - sequence.cached);
  const int64_t first = sequence.cached;
  sequence.cached += count;
  sequence.decoding = sequence.cached == sequence.tokens;
  plan_.slices.push_back({sequence.request, sequence.slot, first, count, sequence.decoding});
  plan_.prompt_tokens += count;
}

// A decoding sequence lacks exactly its newest token in the cache. Victims come from the back of
// running_, so a sequence that has been planned is never one.
void Scheduler::plan_decode() {
  for (size_t i = 0; i < running_.size(); ++i) {
    if (!running_[i].decoding) continue;
    const int64_t needed = pages(running_[i].tokens);
    while (i < running_.size() && needed > running_[i].pages && free_pages_ == 0) preempt_last();
    if (i == running_.size()) return;
    Sequence& sequence = running_[i];
    free_pages_ -= std::max<int64_t>(needed - sequence.pages, 0);
    sequence.pages = std::max(needed, sequence.pages);
    plan_.slices.push_back({sequence.request, sequence.slot, sequence.cached, 1, true});
    ++sequence.cached;
  }
}

const Scheduler::Plan& Scheduler::next() {
  plan_.preempted.clear();
  plan_.slices.clear();
  plan_.prompt_tokens = 0;
  if (options_.prefill_chunk == 0) {
    if (may_admit()) {
      Sequence& sequence = admit();
      plan_prompt(sequence, sequence.tokens);
    } else {
      plan_decode();
    }
  } else {
    // Decoding goes first: it may preempt, and what it takes is not there for new prompts.
    plan_decode();
    const size_t decoding = plan_.slices.size();
    const auto left = [&] { return options_.prefill_chunk - plan_.prompt_tokens; };
    for (Sequence& sequence : running_) {
      if (left() > 0 && !sequence.decoding) plan_prompt(sequence, left());
    }
    while (plan_.preempted.empty() && left() > 0 && may_admit()) plan_prompt(admit(), left());
    std::rotate(plan_.slices.begin(), plan_.slices.begin() + static_cast<int64_t>(decoding),
                plan_.slices.end());
  }
  return plan_;
}

void Scheduler::advance(int64_t slot) { ++find(slot)->tokens; }

void Scheduler::finish(int64_t slot) {
  const auto it = find(slot);
  free_pages_ += it->pages;
  running_.erase(it);
  taken_[slot] = false;
}

std::optional<int64_t> Scheduler::cancel(int64_t request) {
  const auto is_it = [&](const Sequence& sequence) { return sequence.request == request; };
  const auto running = std::find_if(running_.begin(), running_.end(), is_it);
  if (running != running_.end()) {
    const int64_t slot = running->slot;
    finish(slot);
    return slot;
  }
  std::erase_if(waiting_, is_it);
  return std::nullopt;
}

}  // namespace triptych
