// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/summary.h"

#include <algorithm>
#include <map>
#include <set>

#include "attribution/speedup.h"
#include "experiments/plan.h"

namespace triptych {

namespace {

db::SummaryRow summary_row(const CellMeasurement& cell, std::string_view metric,
                           const std::vector<double>& values, const BootstrapOptions& options) {
  const Interval interval = median_interval(values, options);
  db::SummaryRow row;
  row.cell_id = cell.row.cell_id;
  row.metric = metric;
  row.median = median(values);
  row.lo = interval.lo;
  row.hi = interval.hi;
  row.blocks = static_cast<int64_t>(values.size());
  return row;
}

const CellMeasurement* find_stack(std::span<const CellMeasurement> cells, std::string_view stack) {
  for (const CellMeasurement& cell : cells) {
    if (cell.row.stack == stack && cell.usable() && !cell.blocks.empty()) return &cell;
  }
  return nullptr;
}

/// Indices of the blocks that every one of `cells` has.
std::set<int64_t> common_blocks(std::span<const CellMeasurement* const> cells) {
  std::set<int64_t> common;
  for (const db::BlockRow& block : cells.front()->blocks) common.insert(block.block_index);
  for (const CellMeasurement* cell : cells) {
    std::set<int64_t> present;
    for (const db::BlockRow& block : cell->blocks) present.insert(block.block_index);
    std::erase_if(common, [&](int64_t index) { return !present.contains(index); });
  }
  return common;
}

StackSamples samples_of(const CellMeasurement& cell, const std::set<int64_t>& blocks) {
  StackSamples samples;
  samples.stack = cell.row.stack;
  for (const db::BlockRow& block : cell.blocks) {
    if (blocks.contains(block.block_index)) samples.cost.push_back(cost(cell.row, block));
  }
  return samples;
}

/// Median latency from submission to last token over the requests of a pass, ns.
double e2e_ns(const db::BlockRow& block) {
  std::vector<double> values;
  for (const db::RequestRow& request : block.requests) {
    values.push_back(static_cast<double>(request.e2e_ns));
  }
  return median(values);
}

bool meets_slo(const db::CellRow& cell, const db::RequestRow& request) {
  return (!cell.slo_ttft_ns || request.ttft_ns <= *cell.slo_ttft_ns) &&
         (!cell.slo_tpot_ns || !request.tpot_ns ||
          *request.tpot_ns <= static_cast<double>(*cell.slo_tpot_ns)) &&
         (!cell.slo_e2e_ns || request.e2e_ns <= *cell.slo_e2e_ns);
}

/// Requests per second that got everything they were promised; absent without a promise.
std::optional<double> goodput_per_s(const db::CellRow& cell, const db::BlockRow& block) {
  if (!cell.slo_ttft_ns && !cell.slo_tpot_ns && !cell.slo_e2e_ns) return std::nullopt;
  const auto kept =
      std::count_if(block.requests.begin(), block.requests.end(),
                    [&](const db::RequestRow& request) { return meets_slo(cell, request); });
  return 1e9 * static_cast<double>(kept) / static_cast<double>(block.wall_ns);
}

/// Among the requests that were submitted with the first one, the one whose first token came last.
/// All prompts of its wave are read by then, so its gaps are the lengths of steps that only decode,
/// which are what a trace's decode steps are; those of earlier requests hold prompts of others.
const db::RequestRow& last_to_begin(std::span<const db::RequestRow> requests) {
  const db::RequestRow* last = &requests.front();
  for (const db::RequestRow& request : requests) {
    const bool same_wave = request.submit_ns == requests.front().submit_ns;
    if (same_wave && request.ttft_ns > last->ttft_ns) last = &request;
  }
  return *last;
}

void append_rows(const Decomposition& from, const DecomposeSpec& spec, const db::CellRow& cell,
                 int64_t blocks, std::vector<db::DecompositionRow>& rows) {
  int64_t ordinal = 0;
  for (const Contribution& part : from.contributions) {
    db::DecompositionRow row;
    row.run_id = cell.run_id;
    row.comparison = cell.comparison;
    row.decomposition = spec.name;
    row.method = from.method;
    row.ordinal = ordinal++;
    row.factor_name = part.factor_name;
    row.from_stack = part.from;
    row.to_stack = part.to;
    row.log_contribution = part.log_contribution;
    row.log_lo = part.log_interval.lo;
    row.log_hi = part.log_interval.hi;
    row.log_share = part.log_share;
    if (part.log_share_interval) {
      row.share_lo = part.log_share_interval->lo;
      row.share_hi = part.log_share_interval->hi;
    }
    row.log_total = from.log_total;
    row.log_total_lo = from.log_total_interval.lo;
    row.log_total_hi = from.log_total_interval.hi;
    row.blocks = blocks;
    row.metric = cost_metric(cell);
    row.confounded = spec.confounded;
    rows.push_back(std::move(row));
  }
}

}  // namespace

double ns_per_token(const db::BlockRow& block) {
  TRIPTYCH_CHECK(block.output_tokens > 0, "a pass without output tokens was stored");
  return static_cast<double>(block.wall_ns) / static_cast<double>(block.output_tokens);
}

std::optional<double> tpot_ns(const db::BlockRow& block) {
  std::vector<double> values;
  for (const db::RequestRow& request : block.requests) {
    if (request.tpot_ns) values.push_back(*request.tpot_ns);
  }
  if (values.empty()) return std::nullopt;
  return median(values);
}

double ttft_ns(const db::BlockRow& block) {
  std::vector<double> values;
  for (const db::RequestRow& request : block.requests) {
    values.push_back(static_cast<double>(request.ttft_ns));
  }
  return median(values);
}

double e2e_ns_per_token(const db::BlockRow& block) {
  TRIPTYCH_CHECK(block.output_tokens > 0, "a pass without output tokens was stored");
  double sum = 0;
  for (const db::RequestRow& request : block.requests) sum += static_cast<double>(request.e2e_ns);
  return sum / static_cast<double>(block.output_tokens);
}

std::string_view cost_metric(const db::CellRow& cell) {
  return cell.arrivals == "closed" ? "ns_per_token" : "e2e_ns_per_token";
}

double cost(const db::CellRow& cell, const db::BlockRow& block) {
  return cell.arrivals == "closed" ? ns_per_token(block) : e2e_ns_per_token(block);
}

std::vector<db::SummaryRow> summarize(const CellMeasurement& cell,
                                      const BootstrapOptions& options) {
  std::map<std::string_view, std::vector<double>> values;
  for (const db::BlockRow& block : cell.blocks) {
    if (const auto value = tpot_ns(block)) values["tpot_ns"].push_back(*value);
    values["ttft_ns"].push_back(ttft_ns(block));
    values["e2e_ns"].push_back(e2e_ns(block));
    values["ns_per_token"].push_back(ns_per_token(block));
    values["e2e_ns_per_token"].push_back(e2e_ns_per_token(block));
    values["tokens_per_s"].push_back(1e9 / ns_per_token(block));
    if (const auto value = goodput_per_s(cell.row, block)) {
      values["goodput_per_s"].push_back(*value);
    }
  }
  std::vector<db::SummaryRow> rows;
  for (const auto& [metric, samples] : values) {
    rows.push_back(summary_row(cell, metric, samples, options));
  }
  return rows;
}

Result<std::vector<db::DecompositionRow>> decompose_cells(const DecomposeSpec& spec,
                                                          std::span<const CellMeasurement> cells,
                                                          const BootstrapOptions& options) {
  std::vector<db::DecompositionRow> rows;
  std::vector<const CellMeasurement*> path;
  for (const std::string& stack : spec.path) {
    path.push_back(find_stack(cells, stack));
    if (path.back() == nullptr) return rows;
  }
  std::vector<std::string> names;
  for (size_t i = 1; i < path.size(); ++i) {
    names.push_back(factor_name(path[i - 1]->stack, path[i]->stack));
  }
  const CellMeasurement* corner = spec.corner ? find_stack(cells, *spec.corner) : nullptr;
  std::vector<const CellMeasurement*> used = path;
  if (corner != nullptr) used.push_back(corner);
  const std::set<int64_t> blocks = common_blocks(used);
  if (blocks.empty()) return rows;
  std::vector<StackSamples> samples;
  for (const CellMeasurement* cell : used) samples.push_back(samples_of(*cell, blocks));

  std::vector<Decomposition> results;
  if (corner != nullptr) {
    TRIPTYCH_CHECK(samples.size() == 4, "a corner needs a path of three stacks");
    const TwoByTwo square{.baseline = samples[0],
                          .intermediate = samples[1],
                          .full = samples[2],
                          .corner = samples[3],
                          .first_factor = names[0],
                          .second_factor = names[1]};
    TRIPTYCH_TRY(results, decompose_2x2(square, options));
  } else {
    TRIPTYCH_TRY(results.emplace_back(), decompose_path(samples, names, options));
  }
  for (const Decomposition& result : results) {
    append_rows(result, spec, path.front()->row, static_cast<int64_t>(blocks.size()), rows);
  }
  return rows;
}

std::optional<double> trace_dilation(const db::TraceRow& trace,
                                     std::span<const db::BlockRow> blocks) {
  if (trace.steps == 0) return std::nullopt;
  std::vector<double> timed;
  for (const db::BlockRow& block : blocks) {
    if (block.requests.empty()) continue;
    const std::vector<int64_t>& gaps = last_to_begin(block.requests).itl_ns;
    const size_t steps = std::min(gaps.size(), static_cast<size_t>(trace.steps));
    if (steps == 0) continue;
    int64_t sum = 0;
    for (size_t i = 0; i < steps; ++i) sum += gaps[i];
    timed.push_back(static_cast<double>(sum) / static_cast<double>(steps));
  }
  if (timed.empty() || median(timed) <= 0) return std::nullopt;
  return static_cast<double>(trace.window_ns) / static_cast<double>(trace.steps) / median(timed);
}

}  // namespace triptych
