// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The parts of a BCa interval, for statistics that share their resamples. Private to this room.
#pragma once

#include <span>
#include <vector>

#include "attribution/stats.h"

namespace triptych {

/// One statistic: on the sample, on each resample, and with each block left out.
struct Resamples {
  double estimate = 0;
  std::vector<double> resampled;  ///< [resamples]
  std::vector<double> left_out;   ///< [num_blocks]
};

/// Means over blocks of each column, [num_columns][num_blocks]. All columns see the same drawn
/// blocks, so any function of their means can be resampled from the result.
/// Precondition: columns have one size, at least 1.
[[nodiscard]] std::vector<Resamples> resample_means(std::span<const std::vector<double>> columns,
                                                    const BootstrapOptions& options);

/// The BCa interval; with fewer than 3 blocks (-inf, inf). Takes its argument to sort it in place.
[[nodiscard]] Interval bca_interval(Resamples resamples, double confidence);

/// Distribution function of the standard normal, and its inverse for p in (0, 1).
[[nodiscard]] double normal_cdf(double x);
[[nodiscard]] double normal_quantile(double p);

}  // namespace triptych
