// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Two other intervals of the same resamples, to compare coverage with: BCa (Efron 1987) and that of
// Student's t.
#pragma once

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <span>
#include <vector>

#include "attribution/bootstrap.h"
#include "attribution/stats.h"

namespace triptych::test {

/// Efron's a for a mean: a sixth of the skewness of the jackknife influences, which for a mean are
/// the values themselves.
inline double acceleration_of_mean(std::span<const double> values) {
  const double center = mean(values);
  double squares = 0;
  double cubes = 0;
  for (const double value : values) {
    squares += (value - center) * (value - center);
    cubes += (value - center) * (value - center) * (value - center);
  }
  return squares > 0 ? cubes / (6 * squares * std::sqrt(squares)) : 0;
}

/// BCa interval of a mean, with `tail` of the resamples below the bound before it is adjusted.
inline Interval bca_interval(const Resamples& r, std::span<const double> values, double tail) {
  const boost::math::normal_distribution<double> normal;
  const auto count = static_cast<double>(r.resampled.size());
  const auto below = static_cast<double>(std::count_if(r.resampled.begin(), r.resampled.end(),
                                                       [&](double v) { return v < r.estimate; }));
  const double z0 = quantile(normal, std::clamp(below, 0.5, count - 0.5) / count);
  const double a = acceleration_of_mean(values);
  const auto level = [&](double z) {
    const double scale = 1 - a * (z0 + z);
    if (scale <= 0) return z0 + z > 0 ? 1.0 : 0.0;  // past the pole: the extreme resample
    return cdf(normal, z0 + (z0 + z) / scale);
  };
  const double z = quantile(normal, tail);
  return {triptych::quantile(r.resampled, level(z)), triptych::quantile(r.resampled, level(-z))};
}

/// mean +- t * standard error, two-sided `confidence`.
inline Interval student_interval(std::span<const double> values, double confidence) {
  const auto n = static_cast<double>(values.size());
  const double center = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - center) * (value - center);
  const boost::math::students_t_distribution<double> student(n - 1);
  const double half = quantile(student, (1 + confidence) / 2) * std::sqrt(squares / ((n - 1) * n));
  return {center - half, center + half};
}

}  // namespace triptych::test
