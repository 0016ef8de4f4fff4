// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Scheduler: which tokens of which sequences the next step reads. Pure bookkeeping, no clock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace triptych {

enum class BatchPolicy : uint8_t {
  /// A group of at most max_batch waiting requests is admitted and runs until all of them have
  /// finished; only then is the next group formed. A sequence that finishes early is no longer
  /// computed, but its slot stays empty until the group ends.
  kStatic,
  /// A finished sequence's slot takes the next waiting request at once.
  kContinuous,
};

/// When the KV cache holds memory for a sequence.
enum class KvPolicy : uint8_t {
  /// Its whole length, prompt and output, from admission to end. Never preempts.
  kReserve,
  /// Pages for its prompt and the first output token at admission, one more whenever it fills the
  /// last. When none is free the sequence that was admitted last is preempted: its pages are freed,
  /// it goes back to the front of the queue, and when it is admitted again its prompt and the
  /// tokens it had produced are read anew. Tokens that were delivered stay delivered.
  kOnDemand,
};

struct SchedulerOptions {
  BatchPolicy batch = BatchPolicy::kContinuous;
  KvPolicy kv = KvPolicy::kOnDemand;
  int64_t max_batch = 1;      ///< Sequences that run together; slots are numbered from 0.
  int64_t page_size = 1;      ///< Tokens per page of the KV cache.
  int64_t num_pages = 0;      ///< The KV budget.
  int64_t prefill_chunk = 0;  ///< Most prompt tokens in one step; 0: a whole prompt by itself.
};

/// Requests are served in the order of submission: none overtakes one that does not fit yet.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  /// Pages that a request of this length needs at its end; more than num_pages can never run.
  [[nodiscard]] int64_t pages(int64_t tokens) const {
    return (tokens + options_.page_size - 1) / options_.page_size;
  }
  /// Adds a request to the queue. Precondition: pages(prompt + output tokens) <= num_pages.
  void submit(int64_t request, int64_t prompt_tokens, int64_t max_new_tokens);

  /// Tokens [first_position, first_position + num_tokens) of one sequence, all of which exist.
  struct Slice {
    int64_t request = 0;
    int64_t slot = 0;
    int64_t first_position = 0;
    int64_t num_tokens = 0;
    bool samples = false;  ///< They end at the newest token: this step chooses the next.
  };
  struct Preemption {
    int64_t request = 0;
    int64_t slot = 0;
  };
  struct Plan {
    std::vector<Preemption> preempted;  ///< To be removed from the cache before the step.
    std::vector<Slice> slices;          ///< Prompt slices first, then decoding sequences.
    int64_t prompt_tokens = 0;  ///< Of the slices: tokens read as prompts; 0: a decode step.
  };
  /// The next step, in order of admission; no slices if nothing can run before another submit().
  /// Without chunks a waiting request that fits is read by itself, whole, before anything else.
  /// With chunks the step holds one token of every decoding sequence and, beside them, up to
  /// prefill_chunk prompt tokens. Valid until the next call. The caller runs the step and then
  /// calls advance() or finish() for each slice that samples.
  [[nodiscard]] const Plan& next();

  /// The sequence in `slot` has one token more. Precondition: the last plan sampled it.
  void advance(int64_t slot);
  /// The sequence in `slot` has ended; its slot and pages are free.
  void finish(int64_t slot);
  /// A request that has not finished ends, wherever it is. Its slot, if it had one, is free.
  std::optional<int64_t> cancel(int64_t request);

  /// Nothing waits and nothing runs.
  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }
  [[nodiscard]] int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  [[nodiscard]] int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  [[nodiscard]] int64_t free_pages() const { return free_pages_; }

 private:
  struct Sequence {
    int64_t request = 0;
    int64_t tokens = 0;      // that exist: prompt and output so far
    int64_t max_tokens = 0;  // prompt and output at the end
    int64_t slot = -1;
    int64_t cached = 0;     // tokens that the cache holds once the current plan has run
    int64_t pages = 0;      // held
    bool decoding = false;  // its prompt is in the cache
    bool readmit = false;   // was preempted
  };
  [[nodiscard]] std::vector<Sequence>::iterator find(int64_t slot);
  [[nodiscard]] bool may_admit();
  [[nodiscard]] int64_t pages_at_admission(const Sequence& sequence) const;
  Sequence& admit();
  void preempt_last();
  void plan_prompt(Sequence& sequence, int64_t most);
  void plan_decode();

  SchedulerOptions options_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;  // in order of admission
  std::vector<bool> taken_;        // [max_batch]
  int64_t free_pages_;
  int64_t group_left_ = 0;  // kStatic: requests of the current group that were never admitted
  Plan plan_;
};

}  // namespace triptych
