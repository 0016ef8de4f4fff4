// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sampler: from logits to token ids in the caller's memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops.h"

namespace triptych {

/// Where the next token is chosen (RuntimeFeature::kDeviceSampling).
enum class SamplingPlace : uint8_t {
  kDevice,  ///< Only token ids reach the host.
  kHost,    ///< All logits are copied to the host, which chooses by itself.
};

class Sampler {
 public:
  Sampler(Ops& ops, SamplingPlace place) : ops_(ops), place_(place) {}

  /// Greedy: out[i] = index of the largest logit of row i, the lowest index on a tie. Both places
  /// give the same tokens. The host's choice is reported to `sink` if that is not null.
  void sample(Tensor logits, std::span<int32_t> out, ActivitySink* sink);

 private:
  Ops& ops_;
  SamplingPlace place_;
  std::vector<float> host_;  // [rows, vocab_size], kept between steps
};

}  // namespace triptych
