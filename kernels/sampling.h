// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from logits: greedy, or by temperature, top-k and top-p. One definition
// for host and device, so that the same seed gives the same tokens wherever it runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace triptych {

/// temperature 0 is greedy: the largest logit, the lowest index on a tie; NaN never wins (only NaN:
/// token 0). Otherwise the logits divided by temperature; the top_k largest of them (0 = all); of
/// these, in falling order and the lower index first, the fewest whose probabilities reach top_p
/// (1 = all); one of them by its probability, with the random bits of (seed, request, position).
/// Probabilities are sums of whole numbers (kernels/common/sample_math.h), so the choice does not
/// depend on an order of adding.
struct SamplingParams {
  float temperature = 0.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  uint64_t seed = 0;

  // Colder is greedy to any precision that logits have, hotter is uniform.
  static constexpr double kLowestTemperature = 1e-3;
  static constexpr double kHighestTemperature = 1e3;
  static constexpr double kLowestTopP = 1e-6;

  [[nodiscard]] bool greedy() const { return temperature == 0.0f; }
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};
/// Errors: kInvalidArgument naming the field and its range.
[[nodiscard]] Status check_sampling(const SamplingParams& params);
/// "greedy", or "temperature=0.8,top_k=40,top_p=0.95,seed=1"; every field, however it was given.
[[nodiscard]] std::string to_string(const SamplingParams& params);

/// Which token of which request is chosen: the counter of the random numbers. Independent of batch,
/// slot and order.
struct SampleKey {
  int32_t request = 0;
  int32_t position = 0;  ///< Of the new token in its sequence.
};

/// The host's choice, one token. Requires checked params and at least one logit, at most 2^19.
[[nodiscard]] int32_t sample_token(std::span<const float> logits, const SamplingParams& params,
                                   SampleKey key);

}  // namespace triptych
