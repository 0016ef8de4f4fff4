// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Perplexity of an engine on a text: how well the stack still predicts, whatever it cost.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace triptych {

struct PerplexityOptions {
  int64_t window = 512;               ///< Tokens of the text that are read together, at least 2.
  int64_t decode_tokens = 0;          ///< The last so many of a window are read by decode steps.
  std::span<const int32_t> prefix{};  ///< Read before each window: BOS or nothing.
};

struct Perplexity {
  int64_t tokens = 0;     ///< Of the text.
  int64_t predicted = 0;  ///< Those that something stands before in their window.
  double nll = 0;         ///< Sum of -ln p over the predicted tokens, in nats.
  std::vector<double> window_nll;
  int64_t elapsed_ns = 0;  ///< Forward passes and likelihoods.
  [[nodiscard]] double value() const { return std::exp(nll / static_cast<double>(predicted)); }
};

/// Cuts `tokens` into windows, the last one shorter, and predicts every token from those before it
/// in its window; without a prefix the first of a window is not predicted. Source: Jelinek et al.
/// 1977, with the disjoint windows that llama.cpp and Transformers use.
/// Errors: kInvalidArgument (a window below 2, nothing to predict); those of Engine::score().
/// Precondition: the engine's max_sequence holds the prefix and a window.
[[nodiscard]] Result<Perplexity> measure_perplexity(Engine& engine, std::span<const int32_t> tokens,
                                                    const PerplexityOptions& options);

/// -ln softmax(logits)[target], summed in double.
[[nodiscard]] double negative_log_likelihood(std::span<const float> logits, int32_t target);

}  // namespace triptych
