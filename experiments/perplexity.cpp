// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/perplexity.h"

#include <algorithm>

#include "base/strings.h"
#include "base/units.h"
#include "kernels/cpu/ops.h"

namespace triptych {
namespace {

/// One window, [prefix, text], without its last token: that one predicts nothing that is known.
Status score_window(Engine& engine, std::span<const int32_t> window,
                    const PerplexityOptions& options, Perplexity& result) {
  std::vector<int32_t> read(options.prefix.begin(), options.prefix.end());
  read.insert(read.end(), window.begin(), window.end());
  const auto first = std::max<int64_t>(std::ssize(options.prefix), 1);  // the first predicted one
  const std::vector<int32_t> targets(read.begin() + 1, read.end());
  read.pop_back();
  const int64_t prefill = std::max<int64_t>(std::ssize(read) - options.decode_tokens, 1);
  double nll = 0;
  TRIPTYCH_RETURN_IF_ERROR(
      engine.score(read, prefill, [&](int64_t position, std::span<const float> logits) {
        if (position + 1 < first) return;
        nll += negative_log_likelihood(logits, targets[static_cast<size_t>(position)]);
        ++result.predicted;
      }));
  result.nll += nll;
  result.window_nll.push_back(nll);
  return {};
}

}  // namespace

Result<Perplexity> measure_perplexity(Engine& engine, std::span<const int32_t> tokens,
                                      const PerplexityOptions& options) {
  if (options.window < 2) {
    return fail(ErrorCode::kInvalidArgument,
                str_format("window is %lld tokens, expected at least 2",
                           static_cast<long long>(options.window)));
  }
  const bool has_prefix = !options.prefix.empty();
  Perplexity result;
  result.tokens = std::ssize(tokens);
  const int64_t start = now_ns();
  for (int64_t begin = 0; begin < std::ssize(tokens); begin += options.window) {
    const int64_t count = std::min(options.window, std::ssize(tokens) - begin);
    if (count == 1 && !has_prefix) continue;  // a lone token that nothing stands before
    TRIPTYCH_RETURN_IF_ERROR(
        score_window(engine, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                     options, result));
  }
  result.elapsed_ns = now_ns() - start;
  if (result.predicted > 0) return result;
  return fail(ErrorCode::kInvalidArgument,
              str_format("the text has %zu tokens: nothing to predict", tokens.size()));
}

double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  return cpu::log_sum_exp(logits.data(), std::ssize(logits)) -
         static_cast<double>(logits[static_cast<size_t>(target)]);
}

}  // namespace triptych
