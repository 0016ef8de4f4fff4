// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/speedup.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "attribution/bootstrap.h"
#include "base/check.h"
#include "base/strings.h"

namespace triptych {

namespace {

/// A contribution as a linear function of the stacks' log speedups over the first stack.
struct Row {
  std::string factor_name;
  std::string from;
  std::string to;
  std::vector<double> weights;  ///< [num_stacks]
};

Status check_stacks(std::span<const StackSamples> stacks, const BootstrapOptions& options) {
  const auto bad = [](std::string message) {
    return fail(ErrorCode::kInvalidArgument, std::move(message));
  };
  if (options.resamples < 1) return bad("a bootstrap needs at least 1 resample");
  if (!(options.confidence > 0 && options.confidence < 1)) {
    return bad("confidence must lie between 0 and 1");
  }
  const size_t num_blocks = stacks.front().cost.size();
  if (num_blocks == 0) return bad("stack " + stacks.front().stack + " has no blocks");
  for (size_t s = 0; s < stacks.size(); ++s) {
    const StackSamples& samples = stacks[s];
    for (size_t other = 0; other < s; ++other) {
      if (stacks[other].stack == samples.stack) {
        return bad("stack " + samples.stack + " appears twice");
      }
    }
    if (samples.cost.size() != num_blocks) {
      return bad("stack " + samples.stack + " has " + std::to_string(samples.cost.size()) +
                 " blocks, expected the " + std::to_string(num_blocks) + " of stack " +
                 stacks.front().stack);
    }
    for (size_t b = 0; b < num_blocks; ++b) {
      if (std::isfinite(samples.cost[b]) && samples.cost[b] > 0) continue;
      return bad("block " + std::to_string(b) + " of stack " + samples.stack + " costs " +
                 str_format("%g", samples.cost[b]) + ", expected a positive number");
    }
  }
  return {};
}

/// ln(cost of the first stack / cost of stack s), mean over blocks, with its resamples.
/// [num_stacks]
std::vector<Resamples> log_speedups(std::span<const StackSamples> stacks,
                                    const BootstrapOptions& options) {
  std::vector<std::vector<double>> columns(stacks.size());
  for (size_t s = 0; s < stacks.size(); ++s) {
    for (size_t b = 0; b < stacks[s].cost.size(); ++b) {
      // A difference of logs, since the ratio itself could overflow.
      columns[s].push_back(std::log(stacks.front().cost[b]) - std::log(stacks[s].cost[b]));
    }
  }
  return resample_means(columns, options);
}

/// `combine` applied to the estimates and to each resample of statistics like `model`.
template <class Combine>
Resamples map_resamples(const Resamples& model, const Combine& combine) {
  const size_t num_resamples = model.resampled.size();
  Resamples result;
  result.num_blocks = model.num_blocks;
  result.estimate = combine([](const Resamples& r) { return r.estimate; });
  result.resampled.reserve(num_resamples);
  for (size_t i = 0; i < num_resamples; ++i) {
    result.resampled.push_back(combine([i](const Resamples& r) { return r.resampled[i]; }));
  }
  return result;
}

Resamples weighted_sum(std::span<const Resamples> terms, std::span<const double> weights) {
  return map_resamples(terms.front(), [&](const auto& value_of) {
    double sum = 0;
    for (size_t s = 0; s < terms.size(); ++s) {
      sum += weights[s] * value_of(terms[s]);
    }
    return sum;
  });
}

Resamples ratio(const Resamples& part, const Resamples& total) {
  return map_resamples(part, [&](const auto& value_of) {
    const double numerator = value_of(part);
    const double denominator = value_of(total);
    if (denominator != 0) return numerator / denominator;
    return numerator == 0 ? 0.0 : std::copysign(std::numeric_limits<double>::infinity(), numerator);
  });
}

/// Contributions given by `rows`, which sum to the log speedup of `total`.
Decomposition decompose(std::string method, std::span<const Row> rows,
                        std::span<const Resamples> speedups, const Resamples& total,
                        const BootstrapOptions& options) {
  Decomposition result;
  result.method = std::move(method);
  result.log_total = total.estimate;
  result.log_total_interval = percentile_interval(total, options.confidence);
  result.share_refused = result.log_total_interval.lo <= 0 && result.log_total_interval.hi >= 0;
  for (const Row& row : rows) {
    const Resamples log = weighted_sum(speedups, row.weights);
    Contribution& contribution = result.contributions.emplace_back();
    contribution.factor_name = row.factor_name;
    contribution.from = row.from;
    contribution.to = row.to;
    contribution.log_contribution = log.estimate;
    contribution.log_interval = percentile_interval(log, options.confidence);
    if (result.share_refused) continue;
    Resamples share = ratio(log, total);
    contribution.log_share = share.estimate;
    contribution.log_share_interval = percentile_interval(std::move(share), options.confidence);
  }
  return result;
}

}  // namespace

Result<Decomposition> decompose_path(std::span<const StackSamples> path,
                                     std::span<const std::string> factor_names,
                                     const BootstrapOptions& options) {
  if (path.size() < 2) {
    return fail(ErrorCode::kInvalidArgument,
                "a path needs at least 2 stacks, found " + std::to_string(path.size()));
  }
  if (factor_names.size() != path.size() - 1) {
    return fail(ErrorCode::kInvalidArgument,
                "a path of " + std::to_string(path.size()) + " stacks needs " +
                    std::to_string(path.size() - 1) + " factor names, found " +
                    std::to_string(factor_names.size()));
  }
  TRIPTYCH_RETURN_IF_ERROR(check_stacks(path, options));
  const std::vector<Resamples> speedups = log_speedups(path, options);
  std::vector<Row> rows;
  for (size_t rung = 0; rung + 1 < path.size(); ++rung) {
    Row row{factor_names[rung], path[rung].stack, path[rung + 1].stack,
            std::vector<double>(path.size(), 0.0)};
    row.weights[rung] = -1;
    row.weights[rung + 1] = 1;
    rows.push_back(std::move(row));
  }
  return decompose("path", rows, speedups, speedups.back(), options);
}

Result<std::vector<Decomposition>> decompose_2x2(const TwoByTwo& cells,
                                                 const BootstrapOptions& options) {
  const std::string& a = cells.baseline.stack;
  const std::string& b = cells.intermediate.stack;
  const std::string& c = cells.full.stack;
  const std::string& d = cells.corner.stack;
  const std::string& first = cells.first_factor;
  const std::string& second = cells.second_factor;
  // Weights below are in this order; that of A counts nothing, since ln(A / A) = 0.
  const std::vector<StackSamples> stacks = {cells.baseline, cells.intermediate, cells.full,
                                            cells.corner};
  TRIPTYCH_RETURN_IF_ERROR(check_stacks(stacks, options));
  const std::vector<Resamples> speedups = log_speedups(stacks, options);
  const Resamples& total = speedups[2];

  const std::vector<Row> path = {{first, a, b, {-1, 1, 0, 0}}, {second, b, c, {0, -1, 1, 0}}};
  const std::vector<Row> reverse = {{second, a, d, {-1, 0, 0, 1}}, {first, d, c, {0, 0, 1, -1}}};
  // Shapley value of two players: the mean of what each adds in the two orders.
  const std::vector<Row> shapley = {{first, "", "", {-0.5, 0.5, 0.5, -0.5}},
                                    {second, "", "", {-0.5, -0.5, 0.5, 0.5}}};
  const std::vector<Row> interaction = {{first, a, b, {-1, 1, 0, 0}},
                                        {second, a, d, {-1, 0, 0, 1}},
                                        {"interaction", "", "", {1, -1, 1, -1}}};
  return std::vector<Decomposition>{
      decompose("path", path, speedups, total, options),
      decompose("path_reverse", reverse, speedups, total, options),
      decompose("shapley", shapley, speedups, total, options),
      decompose("interaction", interaction, speedups, total, options)};
}

std::vector<double> shapley_values(int num_factors, const std::function<double(uint32_t)>& value) {
  TRIPTYCH_CHECK(num_factors >= 1 && num_factors <= 8, "Shapley values need 1 to 8 factors");
  const auto n = static_cast<uint32_t>(num_factors);
  std::vector<double> values(size_t{1} << n);
  for (uint32_t mask = 0; mask < values.size(); ++mask) values[mask] = value(mask);

  // weight[s] = s! (n - s - 1)! / n!: share of the orders in which a set of s comes before one.
  std::vector<double> weight(n, 1.0 / n);
  for (uint32_t s = 1; s < n; ++s) weight[s] = weight[s - 1] * s / (n - s);

  std::vector<double> result(n, 0.0);
  for (uint32_t factor = 0; factor < n; ++factor) {
    const uint32_t bit = 1U << factor;
    for (uint32_t mask = 0; mask < values.size(); ++mask) {
      if ((mask & bit) != 0) continue;
      result[factor] +=
          weight[static_cast<size_t>(std::popcount(mask))] * (values[mask | bit] - values[mask]);
    }
  }
  return result;
}

}  // namespace triptych
