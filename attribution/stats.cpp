// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "attribution/bootstrap.h"
#include "base/check.h"
#include "base/random.h"

namespace triptych {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMinBlocks = 3;  // two left-out means always lie symmetric: no skewness to see

double sorted_quantile(std::span<const double> sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double fraction = place - static_cast<double>(below);
  if (fraction == 0 || sorted[below] == sorted[below + 1]) return sorted[below];
  return std::lerp(sorted[below], sorted[below + 1], fraction);
}

void check_options(const BootstrapOptions& options) {
  TRIPTYCH_CHECK(options.resamples >= 1, "a bootstrap needs a resample");
  TRIPTYCH_CHECK(options.confidence > 0 && options.confidence < 1, "confidence is in (0, 1)");
}

/// Draws blocks with replacement, in ascending order: a resample that holds each block once then
/// gives the estimate itself to the last bit. Such ties are frequent (2 of 9 resamples of 3 blocks)
/// and count half in the bias correction, so rounding must not push them to one side.
class BlockSampler {
 public:
  BlockSampler(size_t num_blocks, uint64_t seed)
      : random_(seed), counts_(num_blocks), sample_(num_blocks) {}

  std::span<const int64_t> next() {
    std::fill(counts_.begin(), counts_.end(), 0);
    for (size_t i = 0; i < counts_.size(); ++i) ++counts_[random_.below(counts_.size())];
    auto at = sample_.begin();
    for (size_t block = 0; block < counts_.size(); ++block) {
      at = std::fill_n(at, counts_[block], static_cast<int64_t>(block));
    }
    return sample_;
  }

 private:
  RandomStream random_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> sample_;
};

// z of the share of resamples below the estimate: how far the bootstrap median is off. Ties count
// half; the share is kept one half resample away from 0 and 1, where z would be infinite.
double bias_correction(const Resamples& r) {
  const auto [first, last] = std::equal_range(r.resampled.begin(), r.resampled.end(), r.estimate);
  const auto count = static_cast<double>(r.resampled.size());
  const double below =
      static_cast<double>(first - r.resampled.begin()) + 0.5 * static_cast<double>(last - first);
  return normal_quantile(std::clamp(below, 0.5, count - 0.5) / count);
}

// Efron's a: a sixth of the skewness of the jackknife influences.
double acceleration(std::span<const double> left_out) {
  const double center = mean(left_out);
  double squares = 0;
  double cubes = 0;
  for (const double value : left_out) {
    const double d = center - value;
    squares += d * d;
    cubes += d * d * d;
  }
  const double a = cubes / (6 * squares * std::sqrt(squares));
  return std::isfinite(a) ? a : 0;  // no spread, or an infinite ratio: bias correction only
}

double adjusted_level(double z, double z0, double a) {
  const double shifted = z0 + z;
  const double scale = 1 - a * shifted;
  // Past the pole the transformation has run out of its range: the bound is the extreme resample.
  if (scale <= 0) return shifted > 0 ? 1 : 0;
  return normal_cdf(z0 + shifted / scale);
}

std::vector<double> copy_of(std::span<const double> values) {
  return {values.begin(), values.end()};
}

double median_in_place(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return std::midpoint(*std::max_element(values.begin(), middle), *middle);
}

}  // namespace

double median(std::span<const double> values) {
  TRIPTYCH_CHECK(!values.empty(), "the median of nothing");
  std::vector<double> copy = copy_of(values);
  return median_in_place(copy);
}

double quantile(std::span<const double> values, double q) {
  TRIPTYCH_CHECK(!values.empty() && q >= 0 && q <= 1, "a quantile needs values and q in [0, 1]");
  std::vector<double> sorted = copy_of(values);
  std::sort(sorted.begin(), sorted.end());
  return sorted_quantile(sorted, q);
}

double mean(std::span<const double> values) {
  TRIPTYCH_CHECK(!values.empty(), "the mean of nothing");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double normal_quantile(double p) {
  TRIPTYCH_CHECK(p > 0 && p < 1, "the normal quantile needs p in (0, 1)");
  // The lower half only: 1 - p keeps no digits of an upper tail. Bisection, since an interval needs
  // three quantiles and a faster series would save nothing: 64 halvings of 39 leave 2e-18.
  if (p > 0.5) return -normal_quantile(1 - p);
  double lo = -39;  // normal_cdf is 0 there
  double hi = 0;
  for (int step = 0; step < 64; ++step) {
    const double middle = std::midpoint(lo, hi);
    (normal_cdf(middle) < p ? lo : hi) = middle;
  }
  return hi;
}

Interval bca_interval(Resamples r, double confidence) {
  if (r.left_out.size() < kMinBlocks) return {-kInfinity, kInfinity};
  TRIPTYCH_CHECK(std::none_of(r.resampled.begin(), r.resampled.end(),
                              [](double value) { return std::isnan(value); }),
                 "a statistic that is not a number");
  std::sort(r.resampled.begin(), r.resampled.end());
  if (r.resampled.front() == r.resampled.back()) return {r.estimate, r.estimate};
  const double z0 = bias_correction(r);
  const double a = acceleration(r.left_out);
  const double z = normal_quantile((1 - confidence) / 2);
  const double lo = sorted_quantile(r.resampled, adjusted_level(z, z0, a));
  const double hi = sorted_quantile(r.resampled, adjusted_level(-z, z0, a));
  // Between two infinities there is no value: no bound.
  return {std::isnan(lo) ? -kInfinity : lo, std::isnan(hi) ? kInfinity : hi};
}

std::vector<Resamples> resample_means(std::span<const std::vector<double>> columns,
                                      const BootstrapOptions& options) {
  check_options(options);
  const size_t num_blocks = columns.empty() ? 0 : columns.front().size();
  TRIPTYCH_CHECK(num_blocks > 0, "resampling needs blocks");
  std::vector<Resamples> results(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    TRIPTYCH_CHECK(columns[c].size() == num_blocks, "columns differ in their number of blocks");
    results[c].estimate = mean(columns[c]);
    results[c].resampled.resize(static_cast<size_t>(options.resamples));
    if (num_blocks == 1) {
      results[c].left_out = {columns[c].front()};
      continue;
    }
    for (size_t out = 0; out < num_blocks; ++out) {
      double sum = 0;  // not total - value: cancellation would look like spread
      for (size_t b = 0; b < num_blocks; ++b) sum += b == out ? 0 : columns[c][b];
      results[c].left_out.push_back(sum / static_cast<double>(num_blocks - 1));
    }
  }
  BlockSampler sampler(num_blocks, options.seed);
  for (size_t r = 0; r < static_cast<size_t>(options.resamples); ++r) {
    const std::span<const int64_t> sample = sampler.next();
    for (size_t c = 0; c < columns.size(); ++c) {
      double sum = 0;
      for (const int64_t block : sample) sum += columns[c][static_cast<size_t>(block)];
      results[c].resampled[r] = sum / static_cast<double>(num_blocks);
    }
  }
  return results;
}

Interval bootstrap_interval(int64_t num_blocks,
                            const std::function<double(std::span<const int64_t>)>& statistic,
                            const BootstrapOptions& options) {
  check_options(options);
  if (num_blocks < kMinBlocks) return {-kInfinity, kInfinity};
  std::vector<int64_t> sample(static_cast<size_t>(num_blocks));
  std::iota(sample.begin(), sample.end(), int64_t{0});
  Resamples result;
  result.estimate = statistic(sample);
  for (size_t out = 0; out < sample.size(); ++out) {
    std::vector<int64_t> rest = sample;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(out));
    result.left_out.push_back(statistic(rest));
  }
  BlockSampler sampler(sample.size(), options.seed);
  for (int64_t r = 0; r < options.resamples; ++r) {
    result.resampled.push_back(statistic(sampler.next()));
  }
  return bca_interval(std::move(result), options.confidence);
}

Interval mean_interval(std::span<const double> values, const BootstrapOptions& options) {
  const std::vector<double> column = copy_of(values);
  return bca_interval(std::move(resample_means({&column, 1}, options).front()), options.confidence);
}

Interval median_interval(std::span<const double> values, const BootstrapOptions& options) {
  std::vector<double> drawn;  // one buffer for all resamples
  const auto statistic = [&](std::span<const int64_t> blocks) {
    drawn.clear();
    for (const int64_t block : blocks) drawn.push_back(values[static_cast<size_t>(block)]);
    return median_in_place(drawn);
  };
  return bootstrap_interval(static_cast<int64_t>(values.size()), statistic, options);
}

}  // namespace triptych
