// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include "base/units.h"
#include "kernels/cpu/ops.h"

namespace triptych {

void Sampler::sample(Tensor logits, std::span<int32_t> out, ActivitySink* sink) {
  if (place_ == SamplingPlace::kDevice) {
    ops_.argmax(logits);
    ops_.fetch_tokens(out);
    return;
  }
  const int64_t count = logits.rows * logits.columns;
  host_.resize(static_cast<size_t>(count));
  ops_.logits_to_host(logits, host_);
  const int64_t start_ns = sink != nullptr ? now_ns() : 0;
  for (int64_t row = 0; row < logits.rows; ++row) {
    out[row] = cpu::argmax(host_.data() + row * logits.columns, logits.columns);
  }
  if (sink != nullptr) {
    sink->record({.kind = ActivityKind::kKernel,
                  .name = "argmax",
                  .start_ns = start_ns,
                  .end_ns = now_ns(),
                  .bytes = count * static_cast<int64_t>(sizeof(float))});
  }
}

}  // namespace triptych
