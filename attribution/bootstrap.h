// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The parts of a bootstrap interval, for statistics that share their resamples. Private to this
// room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attribution/stats.h"

namespace triptych {

/// One statistic: on the sample and on each resample.
struct Resamples {
  double estimate = 0;
  std::vector<double> resampled;  ///< [resamples]
  int64_t num_blocks = 0;
};

/// Means over blocks of each column, [num_columns][num_blocks]. All columns see the same drawn
/// blocks, so any function of their means can be resampled from the result.
/// Precondition: columns have one size, at least 1.
[[nodiscard]] std::vector<Resamples> resample_means(std::span<const std::vector<double>> columns,
                                                    const BootstrapOptions& options);

/// The expanded percentile interval: the quantiles of the resamples at expanded_tail() and one
/// minus that. With fewer than kMinBlocks blocks (-inf, inf). Takes its argument to sort it in
/// place.
[[nodiscard]] Interval percentile_interval(Resamples resamples, double confidence);

/// Share of the resamples below the lower bound: Phi(-sqrt(n / (n - 1)) t), where t is the
/// (1 + confidence) / 2 quantile of Student's distribution with n - 1 degrees of freedom. The root
/// undoes that a bootstrap divides the variance by n, t that it takes the spread for known.
/// Preconditions: num_blocks >= 2, confidence in (0, 1).
/// Source: Hesterberg 2015, What Teachers Should Know About the Bootstrap, section 3.
[[nodiscard]] double expanded_tail(int64_t num_blocks, double confidence);

}  // namespace triptych
