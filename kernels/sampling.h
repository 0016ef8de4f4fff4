// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from logits: greedy, or by temperature, top-k and top-p. One definition
// for host and device, so that the same seed gives the same tokens wherever it runs.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace triptych {

/// temperature 0 is greedy: the largest logit, the lowest index on a tie; NaN never wins.
/// Otherwise the logits divided by temperature; the top_k largest of them (0 = all); of these, in
/// falling order, the fewest whose probabilities reach top_p (1 = all); one of them by its
/// probability, with the uniform number of (seed, request, position).
struct SamplingParams {
  float temperature = 0.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  uint64_t seed = 0;

  [[nodiscard]] bool greedy() const { return temperature == 0.0f; }
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};
/// Errors: kInvalidArgument naming the field and its range.
[[nodiscard]] Status check_sampling(const SamplingParams& params);

/// Which token of which request is chosen: the counter of the random numbers. Independent of batch,
/// slot and order.
struct SampleKey {
  int32_t request = 0;
  int32_t position = 0;  ///< Of the new token in its sequence.
};

/// In [0, 1), the same on host and device: Philox 4x32-10 of (seed; request, position).
/// Source: Salmon et al. 2011.
[[nodiscard]] float sample_uniform(uint64_t seed, SampleKey key);

/// The host's choice, one token.
[[nodiscard]] int32_t sample_token(std::span<const float> logits, const SamplingParams& params,
                                   SampleKey key);

}  // namespace triptych
