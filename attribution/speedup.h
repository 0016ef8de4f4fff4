// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// decompose(): where a speedup comes from, on the log scale, with intervals.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attribution/stats.h"
#include "base/result.h"

namespace triptych {

/// One stack's measurements: cost[b] > 0 is what block b took (ns per token; lower is better).
/// All stacks of a comparison have the same blocks in the same order.
struct StackSamples {
  std::string stack;
  std::vector<double> cost;
};

/// One row of a decomposition. `log_contribution` values of one method sum to ln F.
struct Contribution {
  std::string factor_name;  ///< "runtime", "kernel_quantization", "interaction".
  std::string from;         ///< Stacks of the rung ("" for Shapley and interaction rows).
  std::string to;
  double log_contribution = 0;      ///< ln of the factor.
  Interval log_interval;            ///< Bootstrap interval of log_contribution.
  std::optional<double> log_share;  ///< Absent when the interval of ln F covers 0.
  std::optional<Interval> log_share_interval;
};

struct Decomposition {
  std::string method;    ///< "path", "path_reverse", "shapley", "interaction".
  double log_total = 0;  ///< ln F, F = cost(first stack) / cost(last stack).
  Interval log_total_interval;
  bool share_refused = false;
  std::vector<Contribution> contributions;
};

/// Splits ln F of a path first -> ... -> last into its rungs. F is the ratio of geometric means
/// over blocks, so contributions telescope and sum to ln F. Blocks are resampled, all stacks
/// together, which keeps their pairing; intervals are those of
/// bootstrap_interval(). Requires >= 2 stacks and >= 1 block; with fewer than kMinBlocks blocks
/// intervals are (-inf, inf).
/// factor_names has one name per rung.
[[nodiscard]] Result<Decomposition> decompose_path(std::span<const StackSamples> path,
                                                   std::span<const std::string> factor_names,
                                                   const BootstrapOptions& options);

/// The 2x2: both orders ("path", "path_reverse"), Shapley values and main effects + interaction.
/// interaction = ln C - ln B - ln D + ln A in terms of speed. Four rows sets, one per method.
struct TwoByTwo {
  StackSamples baseline;      ///< A: slow runtime, f16.
  StackSamples intermediate;  ///< B: fast runtime, f16.
  StackSamples full;          ///< C: fast runtime, quantized.
  StackSamples corner;        ///< D: slow runtime, quantized.
  std::string first_factor;   ///< A -> B, "runtime".
  std::string second_factor;  ///< B -> C, "kernel_quantization".
};
[[nodiscard]] Result<std::vector<Decomposition>> decompose_2x2(const TwoByTwo& cells,
                                                               const BootstrapOptions& options);

/// Shapley values of `num_factors` (1 to 8) factors; value(mask) is ln F with the factors of the
/// bit mask switched on, value(0) = 0. They sum to value(all). Source: Shapley 1953.
[[nodiscard]] std::vector<double> shapley_values(int num_factors,
                                                 const std::function<double(uint32_t)>& value);

}  // namespace triptych
