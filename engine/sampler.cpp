// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <algorithm>

#include "base/units.h"

namespace triptych {

void Sampler::sample(Tensor logits, std::span<const SampledRow> sampled, ActivitySink* sink) {
  if (place_ == SamplingPlace::kDevice) return ops_.sample(logits, params_);
  const int64_t count = logits.rows * logits.columns;
  host_.resize(static_cast<size_t>(count));
  chosen_.resize(static_cast<size_t>(logits.rows));
  ops_.logits_to_host(logits, host_);
  const int64_t start_ns = sink != nullptr ? now_ns() : 0;
  auto rows = [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const std::span<const float> values(host_.data() + row * logits.columns,
                                          static_cast<size_t>(logits.columns));
      chosen_[static_cast<size_t>(row)] =
          sample_token(values, params_, sampled[static_cast<size_t>(row)].key);
    }
  };
  pool_.parallel_for(logits.rows, 1, rows);
  if (sink != nullptr) {
    sink->record({.kind = ActivityKind::kKernel,
                  .name = params_.greedy() ? "argmax" : "sample",
                  .start_ns = start_ns,
                  .end_ns = now_ns(),
                  .bytes = count * static_cast<int64_t>(sizeof(float))});
  }
}

void Sampler::fetch(std::span<int32_t> out) {
  if (place_ == SamplingPlace::kDevice) return ops_.fetch_tokens(out);
  std::copy(chosen_.begin(), chosen_.end(), out.begin());
}

}  // namespace triptych
