// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Small-sample statistics: quantiles and bootstrap intervals.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace triptych {

struct Interval {
  double lo = 0;
  double hi = 0;
};

struct BootstrapOptions {
  int64_t resamples = 10000;
  double confidence = 0.95;
  uint64_t seed = 1;
};

/// Median; the mean of the two middle values for an even count. Precondition: not empty.
[[nodiscard]] double median(std::span<const double> values);
/// Linear interpolation between order statistics (Hyndman and Fan 1996, type 7), q in [0, 1].
[[nodiscard]] double quantile(std::span<const double> values, double q);
[[nodiscard]] double mean(std::span<const double> values);

/// With fewer blocks there is no interval: no resample leaves the range of the blocks, and the
/// range of 4 misses the median of their distribution once in 8 times.
inline constexpr int64_t kMinBlocks = 5;

/// Expanded percentile interval of statistic(sample of block indices), resampling [0, num_blocks):
/// a percentile bootstrap whose tails are those of Student's t, so that few blocks give a wide
/// interval. Degenerate samples (all resamples equal) give a zero-width interval at the estimate;
/// fewer than kMinBlocks blocks give (-inf, inf). How often such intervals cover, and why they are
/// not BCa, is in docs/adr/0011-expanded-percentile-intervals.md.
/// Preconditions: the statistic is never NaN, resamples >= 1, 0 < confidence < 1.
/// Source: Hesterberg 2015, What Teachers Should Know About the Bootstrap, section 3.
[[nodiscard]] Interval bootstrap_interval(
    int64_t num_blocks, const std::function<double(std::span<const int64_t>)>& statistic,
    const BootstrapOptions& options);

/// Interval of the mean of independent values; bootstrap_interval of the mean, only faster.
[[nodiscard]] Interval mean_interval(std::span<const double> values,
                                     const BootstrapOptions& options);
/// Interval of the median of independent values.
[[nodiscard]] Interval median_interval(std::span<const double> values,
                                       const BootstrapOptions& options);

}  // namespace triptych
