// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sampler: from logits to token ids in the caller's memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/sampling.h"

namespace triptych {

/// Where the next token is chosen (RuntimeFeature::kDeviceSampling).
enum class SamplingPlace : uint8_t {
  kDevice,  ///< Only token ids reach the host.
  kHost,    ///< All logits are copied to the host, which chooses by itself.
};

class Sampler {
 public:
  /// Keeps references to `ops` and `pool`.
  Sampler(Ops& ops, SamplingPlace place, const SamplingParams& params, cpu::ThreadPool& pool)
      : ops_(ops), place_(place), params_(params), pool_(pool) {}

  /// Chooses the token after each sampled row of the step; row i of `logits` is that of sampled[i].
  /// Both places choose alike. On the host it waits for the logits, and the choice is reported to
  /// `sink` if that is not null; on the device it only issues.
  void sample(Tensor logits, std::span<const SampledRow> sampled, ActivitySink* sink);
  /// Waits for the tokens of the oldest sample() that was not fetched yet.
  void fetch(std::span<int32_t> out);
  [[nodiscard]] SamplingPlace place() const { return place_; }

 private:
  Ops& ops_;
  SamplingPlace place_;
  SamplingParams params_;
  cpu::ThreadPool& pool_;
  std::vector<float> host_;  // [rows, vocab_size], kept between steps
  std::vector<int32_t> chosen_;
};

}  // namespace triptych
