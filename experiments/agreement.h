// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Agreement: does a stack say what the baseline says? Asked before anything is timed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace triptych {

/// How one stack's logits compare with the baseline's, teacher-forced on the same tokens. For an
/// engine that gives no logits, how the tokens that it generates do: after the first that differs
/// the contexts differ, too. Where the baseline gives none, its tokens take their place.
struct Agreement {
  double token_agreement = 0;  ///< Share of output positions whose argmax is the baseline's.
  /// Largest |difference| over those positions and the vocabulary; none unless both give logits.
  std::optional<double> max_logit_error{};
  /// exp(mean negative log-likelihood) of prompts and output; none without logits.
  std::optional<double> perplexity{};
};

/// One engine of a comparison; the first that is given is the baseline.
struct AgreementResult {
  std::optional<Agreement> agreement;
  std::string error;  ///< Why there is none.
  /// The device was lost under this engine; nothing was asked of any engine after that.
  bool device_lost = false;
};

/// Generates with engines[0], then scores every engine that can_score() on prompt + output of the
/// baseline and lets the others generate. At most 4 requests with 64 output tokens each are scored,
/// fewer when their prompts have over 1024 tokens together, at least one: enough to see a wrong
/// kernel, little beside the timed passes. Holds the baseline's logits of one request at a time,
/// [64, vocab_size] f32. result[i] belongs to engines[i]; if engines[0] fails or a device is lost,
/// none has an agreement.
[[nodiscard]] std::vector<AgreementResult> measure_agreement(std::span<Engine* const> engines,
                                                             std::span<const Request> requests);

}  // namespace triptych
