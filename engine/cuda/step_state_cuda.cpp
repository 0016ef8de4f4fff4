// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/step_state_cuda.h"

#include <algorithm>

#include "base/check.h"

namespace triptych {

namespace {

int64_t pages_of_sequence(const EngineOptions& options) {
  if (!options.features.has(RuntimeFeature::kPagedKv)) return 0;
  return (options.max_sequence + options.page_size - 1) / options.page_size;
}

StepLimits limits(const EngineOptions& options, int64_t num_layers) {
  const int64_t pages = pages_of_sequence(options);
  return {.rows = options.max_rows(),
          .sequences = options.max_batch,
          .pages_per_sequence = pages,
          .old_parts = pages == 0 ? 2 * num_layers : 0};
}

}  // namespace

StepState::StepState(const EngineOptions& options, int64_t num_layers)
    : num_layers_(num_layers),
      pages_per_sequence_(pages_of_sequence(options)),
      buffers_(limits(options, num_layers)) {}

void StepState::begin(const Step& step, int64_t tokens_at, cudaStream_t stream) {
  const StepBuffers::View& host = buffers_.begin();
  rows_ = step.rows();
  padded_ = step.padded_rows > 0;
  const auto real = static_cast<int64_t>(step.sequences.size());
  sequences_ = padded_ ? rows_ : real;
  TRIPTYCH_CHECK(rows_ <= buffers_.max_rows() && sequences_ <= buffers_.max_sequences(),
                 "a step of more rows or sequences than the engine was made for");
  fill_rows(step, host);
  fill_sampled(step, host);
  *host.tokens_at = static_cast<int32_t>(tokens_at);
  if (paged_ != nullptr) {
    fill_pages(step, host);
  } else {
    fill_concat(step, host);
  }
  // A graph serves steps of any length.
  if (padded_) max_kv_length_ = step.kv_bound;
  buffers_.commit(sequences_, stream);
}

void StepState::fill_rows(const Step& step, const StepBuffers::View& host) {
  const auto real_rows = static_cast<int64_t>(step.tokens.size());
  const auto real = static_cast<int64_t>(step.sequences.size());
  std::copy(step.tokens.begin(), step.tokens.end(), host.tokens);
  std::copy(step.positions.begin(), step.positions.end(), host.positions);
  std::fill(host.tokens + real_rows, host.tokens + rows_, 0);
  std::fill(host.positions + real_rows, host.positions + rows_, 0);
  std::fill(host.row_sequences + real_rows, host.row_sequences + rows_, -1);
  lengths_.clear();
  first_decode_ = real;
  max_kv_length_ = 0;
  total_tokens_ = 0;
  int64_t row = 0;
  for (int64_t s = 0; s < real; ++s) {
    const StepSequence& sequence = step.sequences[static_cast<size_t>(s)];
    const int64_t length = sequence.first_position + sequence.num_tokens;
    host.kv_lengths[s] = static_cast<int32_t>(length);
    host.row_starts[s] = static_cast<int32_t>(row);
    std::fill(host.row_sequences + row, host.row_sequences + row + sequence.num_tokens,
              static_cast<int32_t>(s));
    row += sequence.num_tokens;
    max_kv_length_ = std::max(max_kv_length_, length);
    total_tokens_ += length;
    lengths_.push_back({sequence.first_position, sequence.num_tokens});
  }
  while (first_decode_ > 0 && lengths_[static_cast<size_t>(first_decode_ - 1)].num_tokens == 1) {
    --first_decode_;
  }
  for (int64_t s = real; s < sequences_; ++s) {
    host.kv_lengths[s] = 0;
    host.row_starts[s] = static_cast<int32_t>(row + s - real);
  }
  host.row_starts[sequences_] = static_cast<int32_t>(rows_);
  first_decode_row_ = host.row_starts[first_decode_];
}

void StepState::fill_sampled(const Step& step, const StepBuffers::View& host) {
  const auto real = static_cast<int64_t>(step.sampled.size());
  real_sampled_ = real;
  sampled_ = padded_ ? rows_ : real;
  for (int64_t i = 0; i < real; ++i) {
    const SampledRow& sampled = step.sampled[static_cast<size_t>(i)];
    host.sampled_rows[i] = static_cast<int32_t>(sampled.row);
    host.sampled_slots[i] = sampled.slot;
    host.sample_keys[i] = sampled.key;
  }
  for (int64_t i = real; i < sampled_; ++i) {
    host.sampled_rows[i] = static_cast<int32_t>(i);
    host.sampled_slots[i] = -1;
    host.sample_keys[i] = {};
  }
}

void StepState::fill_pages(const Step& step, const StepBuffers::View& host) {
  const auto real = static_cast<int64_t>(step.sequences.size());
  for (int64_t s = 0; s < real; ++s) {
    const std::span<const int32_t> ids =
        paged_->table().ids(step.sequences[static_cast<size_t>(s)].slot);
    std::copy(ids.begin(), ids.end(), host.page_table + s * pages_per_sequence_);
  }
}

void StepState::fill_concat(const Step& step, const StepBuffers::View& host) {
  using Group = CudaConcatCache::Group;
  group_ = concat_->make_group(total_tokens_);
  outgrown_.clear();
  std::vector<std::shared_ptr<Group>> old;
  int64_t start = 0;
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const int64_t slot = step.sequences[s].slot;
    const CudaConcatCache::Place place = concat_->place(slot);
    host.kv_starts[s] = static_cast<int32_t>(start);
    host.old_lengths[s] = static_cast<int32_t>(place.cached);
    for (int64_t part = 0; part < 2 * num_layers_; ++part) {
      host.old_parts[part * buffers_.max_sequences() + static_cast<int64_t>(s)] =
          place.group == nullptr ? nullptr
                                 : place.group->data(part / 2, static_cast<int>(part % 2)) +
                                       place.start * concat_->token_bytes();
    }
    concat_->move(slot, group_, start);
    start += concat_->length(slot);
    if (place.group != nullptr && std::find(old.begin(), old.end(), place.group) == old.end()) {
      old.push_back(place.group);
    }
  }
  for (std::shared_ptr<Group>& group : old) {
    if (group.use_count() == 1) outgrown_.push_back(std::move(group));
  }
}

int64_t StepState::keys(int64_t window) const {
  int64_t sum = 0;
  for (const Sequence& s : lengths_) {
    const int64_t end = s.first_position + s.num_tokens;
    const int64_t oldest = window > 0 ? std::max<int64_t>(0, s.first_position - window + 1) : 0;
    sum += end - oldest;
  }
  return sum;
}

int64_t StepState::attended(int64_t window) const {
  int64_t sum = 0;
  for (const Sequence& s : lengths_) {
    for (int64_t i = 1; i <= s.num_tokens; ++i) {
      const int64_t all = s.first_position + i;
      sum += window > 0 ? std::min(window, all) : all;
    }
  }
  return sum;
}

}  // namespace triptych
