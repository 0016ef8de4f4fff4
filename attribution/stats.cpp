// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/stats.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
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

/// Draws blocks with replacement.
class BlockSampler {
 public:
  BlockSampler(size_t num_blocks, uint64_t seed) : random_(seed), sample_(num_blocks) {}

  std::span<const int64_t> next() {
    for (int64_t& block : sample_) block = static_cast<int64_t>(random_.below(sample_.size()));
    return sample_;
  }

 private:
  RandomStream random_;
  std::vector<int64_t> sample_;
};

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

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

double expanded_tail(int64_t num_blocks, double confidence) {
  TRIPTYCH_CHECK(num_blocks >= 2, "one block has no spread");
  TRIPTYCH_CHECK(confidence > 0 && confidence < 1, "confidence is in (0, 1)");
  const auto n = static_cast<double>(num_blocks);
  const boost::math::students_t_distribution<double> student(n - 1);
  return normal_cdf(std::sqrt(n / (n - 1)) * quantile(student, (1 - confidence) / 2));
}

Interval percentile_interval(Resamples r, double confidence) {
  if (r.num_blocks < kMinBlocks) return {-kInfinity, kInfinity};
  TRIPTYCH_CHECK(std::none_of(r.resampled.begin(), r.resampled.end(),
                              [](double value) { return std::isnan(value); }),
                 "a statistic that is not a number");
  std::sort(r.resampled.begin(), r.resampled.end());
  // Rounding alone must not put the estimate beside an interval of no width.
  if (r.resampled.front() == r.resampled.back()) return {r.estimate, r.estimate};
  const double tail = expanded_tail(r.num_blocks, confidence);
  const double lo = sorted_quantile(r.resampled, tail);
  const double hi = sorted_quantile(r.resampled, 1 - tail);
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
    results[c].num_blocks = static_cast<int64_t>(num_blocks);
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
  result.num_blocks = num_blocks;
  BlockSampler sampler(sample.size(), options.seed);
  for (int64_t r = 0; r < options.resamples; ++r) {
    result.resampled.push_back(statistic(sampler.next()));
  }
  return percentile_interval(std::move(result), options.confidence);
}

Interval mean_interval(std::span<const double> values, const BootstrapOptions& options) {
  const std::vector<double> column = copy_of(values);
  return percentile_interval(std::move(resample_means({&column, 1}, options).front()),
                             options.confidence);
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
