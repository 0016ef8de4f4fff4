// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/threats.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "attribution/stats.h"
#include "base/strings.h"

namespace triptych {

namespace {

// From here on a 95 % interval covers about what it names (tests/attribution/coverage_test.cpp).
constexpr int64_t kEnoughBlocks = 8;
constexpr double kOutlier = 1.5;            // x the cell's median cost
constexpr double kDrift = 0.03;             // first against second half of the blocks
constexpr double kClockDrift = 0.01;        // between arms
constexpr double kDilation = 0.05;          // what tracing may add to a step
constexpr double kUnclassified = 0.01;      // of a token's time
constexpr double kSeriousAgreement = 0.95;  // below it the stacks hardly compute the same thing
// The run itself keeps every core busy; half a thread beyond that is somebody else.
constexpr double kForeignLoad = 0.5;

/// Collects the rows of one comparison (or of the run, label "").
class Collector {
 public:
  Collector(int64_t run_id, std::string label) : run_id_(run_id), label_(std::move(label)) {}
  void add(std::string_view code, std::string_view severity, std::string message) {
    rows_.push_back(
        {run_id_, label_, std::string(code), std::string(severity), std::move(message)});
  }
  [[nodiscard]] std::vector<db::ThreatRow> take() { return std::move(rows_); }

 private:
  int64_t run_id_;
  std::string label_;
  std::vector<db::ThreatRow> rows_;
};

using Cells = std::span<const CellMeasurement>;

bool measured(const CellMeasurement& cell) { return cell.usable() && !cell.blocks.empty(); }

std::vector<double> costs(const CellMeasurement& cell) {
  std::vector<double> values;
  for (const db::BlockRow& block : cell.blocks) values.push_back(cost(cell.row, block));
  return values;
}

void find_missing_cells(Cells cells, Collector& out) {
  for (const CellMeasurement& cell : cells) {
    if (cell.usable()) continue;
    out.add("cell_missing", "serious",
            cell.row.stack + " " + cell.row.status + ": " + cell.row.reason);
  }
}

void find_few_blocks(Cells cells, Collector& out) {
  int64_t fewest = kEnoughBlocks;
  for (const CellMeasurement& cell : cells) {
    if (!measured(cell)) continue;
    fewest = std::min(fewest, static_cast<int64_t>(cell.blocks.size()));
  }
  if (fewest >= kEnoughBlocks) return;
  const bool none = fewest < kMinBlocks;
  const auto blocks = static_cast<long long>(fewest);
  out.add("few_blocks", none ? "serious" : "warning",
          none ? str_format("%lld blocks; there is no interval below %lld", blocks,
                            static_cast<long long>(kMinBlocks))
               : str_format("%lld blocks; intervals cover what they name from %lld on", blocks,
                            static_cast<long long>(kEnoughBlocks)));
}

void find_outliers(const CellMeasurement& cell, Collector& out) {
  const std::vector<double> values = costs(cell);
  const double middle = median(values);
  const auto worst = std::max_element(values.begin(), values.end());
  const auto count = std::count_if(values.begin(), values.end(),
                                   [&](double value) { return value > kOutlier * middle; });
  if (count == 0) return;
  out.add("block_outliers", "warning",
          str_format("%s: %lld of %zu blocks cost over %.1fx the median (block %lld: %.2fx)",
                     cell.row.stack.c_str(), static_cast<long long>(count), values.size(), kOutlier,
                     static_cast<long long>(
                         cell.blocks[static_cast<size_t>(worst - values.begin())].block_index),
                     *worst / middle));
}

void find_drift(const CellMeasurement& cell, Collector& out) {
  const std::vector<double> values = costs(cell);
  if (values.size() < 4) return;  // two halves of at least two
  const std::span<const double> all(values);
  const double before = median(all.first(values.size() / 2));
  const double after = median(all.last(values.size() / 2));
  const double change = after / before - 1;
  if (std::abs(change) <= kDrift) return;
  out.add("drift", "warning",
          str_format("%s: cost changed by %+.1f %% from the first half of the blocks to the second",
                     cell.row.stack.c_str(), change * 100));
}

void find_intervals(const ComparisonEvidence& evidence, Collector& out) {
  std::set<std::string> seen;  // ln F is the same in every row of a decomposition
  for (const db::DecompositionRow& row : evidence.decompositions) {
    if (!seen.insert(row.decomposition).second) continue;
    const double width = row.log_total_hi - row.log_total_lo;
    const bool known = std::isfinite(width);  // few_blocks tells why it is not
    if (known && !(width <= std::abs(row.log_total) / 2)) {
      out.add("wide_interval", "warning",
              str_format("%s: the interval of ln F is %.3f wide, ln F is %.3f",
                         row.decomposition.c_str(), width, row.log_total));
    }
    const bool refused = row.log_total_lo <= 0 && row.log_total_hi >= 0;
    if (refused) {
      out.add("share_refused", "serious",
              row.decomposition +
                  (known ? ": the interval of ln F covers 0" : ": ln F has no interval") +
                  ", so there is nothing to share");
    }
    if (!row.confounded.empty()) {
      out.add("confounded", "warning", row.decomposition + ": " + row.confounded);
    }
  }
}

void find_missing_decompositions(const ComparisonEvidence& evidence, Collector& out) {
  const auto has_blocks = [&](const std::string& stack) {
    return std::any_of(evidence.cells.begin(), evidence.cells.end(),
                       [&](const auto& cell) { return cell.row.stack == stack && measured(cell); });
  };
  for (const DecomposeSpec& spec : evidence.specs) {
    for (const std::string& stack : spec.path) {
      if (has_blocks(stack)) continue;
      out.add("decomposition_missing", "serious",
              spec.name + ": stack " + stack + " of its path was not measured here");
      break;
    }
    if (spec.corner && !has_blocks(*spec.corner)) {
      out.add("corner_missing", "warning",
              spec.name + ": corner " + *spec.corner +
                  " was not measured, so the order of the factors cannot be tested");
    }
  }
}

void find_disagreement(Cells cells, Collector& out) {
  for (const CellMeasurement& cell : cells) {
    if (!measured(cell)) continue;
    if (!cell.facts || !cell.facts->token_agreement) {
      out.add("outputs_not_compared", "serious",
              cell.row.stack + ": its outputs were not compared with the baseline's");
      continue;
    }
    const double agreement = *cell.facts->token_agreement;
    if (!cell.facts->perplexity) {
      out.add("outputs_by_tokens", agreement < 1 ? "warning" : "note",
              cell.row.stack + str_format(": it gives no logits; %.1f %% of the tokens that it "
                                          "generated are the baseline's (after the first that "
                                          "differs the contexts differ, too)",
                                          agreement * 100));
      continue;
    }
    if (agreement >= 1) continue;
    if (!cell.facts->max_logit_error) {
      out.add("outputs_differ", agreement < kSeriousAgreement ? "serious" : "warning",
              str_format("%s: %.1f %% of its tokens are the baseline's, which gives no logits",
                         cell.row.stack.c_str(), agreement * 100));
      continue;
    }
    out.add("outputs_differ", agreement < kSeriousAgreement ? "serious" : "warning",
            str_format("%s: %.1f %% of its tokens are the baseline's (largest logit error %.3g)",
                       cell.row.stack.c_str(), agreement * 100, *cell.facts->max_logit_error));
  }
}

void find_load(const ComparisonEvidence& evidence, Collector& out) {
  double highest = 0;
  for (const CellMeasurement& cell : evidence.cells) {
    for (const db::BlockRow& block : cell.blocks) highest = std::max(highest, block.load_average);
  }
  if (highest <= static_cast<double>(evidence.cores) + kForeignLoad) return;
  out.add("machine_load", "warning",
          str_format("load average up to %.2f on %lld cores while measuring", highest,
                     static_cast<long long>(evidence.cores)));
}

void find_clock(Cells cells, Collector& out) {
  std::vector<std::pair<double, std::string>> clocks;
  bool unreadable = false;
  for (const CellMeasurement& cell : cells) {
    if (!measured(cell)) continue;
    std::vector<double> mhz;
    for (const db::BlockRow& block : cell.blocks) {
      if (block.cpu_mhz) mhz.push_back(*block.cpu_mhz);
    }
    unreadable = unreadable || mhz.empty();
    if (!mhz.empty()) clocks.emplace_back(median(mhz), cell.row.stack);
  }
  if (unreadable) out.add("clock_unreadable", "note", "the system does not tell the CPU's clock");
  if (clocks.size() < 2) return;
  const auto [low, high] = std::minmax_element(clocks.begin(), clocks.end());
  if (high->first <= low->first * (1 + kClockDrift)) return;
  out.add("clock_drift", "warning",
          str_format("CPU clock %.0f MHz under %s, %.0f MHz under %s", low->first,
                     low->second.c_str(), high->first, high->second.c_str()));
}

void find_impossible(const CellMeasurement& cell, Collector& out) {
  if (!cell.facts || cell.facts->floor_ns_per_step <= 0) return;
  std::vector<double> values;
  for (const db::BlockRow& block : cell.blocks) {
    if (const auto value = tpot_ns(block)) values.push_back(*value);
  }
  if (values.empty() || median(values) >= cell.facts->floor_ns_per_step) return;
  out.add("below_floor", "warning",
          str_format("%s: TPOT is %.2fx its floor: the ceilings were measured too low (load at the "
                     "start), or the weights fit into a cache",
                     cell.row.stack.c_str(), median(values) / cell.facts->floor_ns_per_step));
}

void find_trace(const CellMeasurement& cell, Collector& out) {
  const char* stack = cell.row.stack.c_str();
  if (cell.facts && cell.facts->trace_dilation && *cell.facts->trace_dilation > 1 + kDilation) {
    out.add("trace_dilation", "warning",
            str_format("%s: tracing made a step %.1f %% longer", stack,
                       (*cell.facts->trace_dilation - 1) * 100));
  }
  if (!cell.trace_error.empty()) {
    out.add("trace_failed", "warning", cell.row.stack + ": no trace: " + cell.trace_error);
  }
  if (!cell.trace && cell.trace_error.empty() && !cell.stack.builtin()) {
    out.add("trace_of_others", "note",
            cell.row.stack +
                ": there is no trace of this engine of another project, so its time is not "
                "divided");
  }
  if (!cell.trace) return;
  if (cell.trace->dropped > 0) {
    out.add("dropped_records", "serious",
            str_format("%s: the trace lost %lld records, so its time is not divided", stack,
                       static_cast<long long>(cell.trace->dropped)));
  }
  int64_t unclassified = 0;
  for (const db::TokenTimeRow& row : cell.trace->token_times) {
    if (row.group == "unclassified") unclassified += row.ns;
  }
  const auto window = static_cast<double>(cell.trace->window_ns);
  if (window > 0 && static_cast<double>(unclassified) > kUnclassified * window) {
    out.add("unclassified_time", "warning",
            str_format("%s: no rule names %.1f %% of a token's time", stack,
                       100 * static_cast<double>(unclassified) / window));
  }
}

/// Names one field in which cells of a comparison differ although no axis of a stack says so.
template <class Field>
void find_difference(Cells cells, const char* what, Field field, Collector& out) {
  for (const CellMeasurement& cell : cells) {
    if (field(cell.row) == field(cells.front().row)) continue;
    out.add(
        "harness_differs", "serious",
        std::string(what) + " of " + cell.row.stack + " is not that of " + cells.front().row.stack);
    return;
  }
}

void find_harness(Cells cells, Collector& out) {
  if (cells.empty()) return;
  using Row = const db::CellRow&;
  find_difference(
      cells, "sampling", [](Row r) { return r.sampling; }, out);
  find_difference(
      cells, "prompt pool", [](Row r) { return r.prompt_pool_hash; }, out);
  find_difference(
      cells, "EOS policy", [](Row r) { return r.eos_policy; }, out);
  find_difference(
      cells, "concurrency", [](Row r) { return r.concurrency_total; }, out);
  find_difference(
      cells, "concurrency per instance", [](Row r) { return r.concurrency_per_instance; }, out);
  find_difference(
      cells, "timing boundary", [](Row r) { return r.timing_boundary; }, out);
  find_difference(
      cells, "model", [](Row r) { return r.model_hash; }, out);
}

}  // namespace

std::vector<db::ThreatRow> run_threats(const RunConditions& conditions) {
  Collector out(conditions.run_id, "");
  if (!conditions.fallback_reason.empty()) {
    out.add("model_fallback", "serious",
            "the fallback model was measured instead: " + conditions.fallback_reason);
  }
  if (conditions.model_origin.starts_with("synthetic:")) {
    out.add("synthetic_weights", "warning",
            "weights are random (" + conditions.model_origin +
                "): times are those of the shapes, outputs mean nothing");
  }
  if (conditions.load_average > static_cast<double>(conditions.cores)) {
    out.add("machine_load", "warning",
            str_format("load average %.2f on %lld cores when the run began",
                       conditions.load_average, static_cast<long long>(conditions.cores)));
  }
  return out.take();
}

std::vector<db::ThreatRow> comparison_threats(const ComparisonEvidence& evidence) {
  Collector out(evidence.run_id, evidence.label);
  find_missing_cells(evidence.cells, out);
  find_missing_decompositions(evidence, out);
  find_few_blocks(evidence.cells, out);
  find_intervals(evidence, out);
  find_disagreement(evidence.cells, out);
  find_harness(evidence.cells, out);
  find_load(evidence, out);
  find_clock(evidence.cells, out);
  if (evidence.synthetic_tokens) {
    out.add("synthetic_tokens", "note",
            "the model has no tokenizer: prompts have the right length but no meaning");
  }
  for (const CellMeasurement& cell : evidence.cells) {
    if (!measured(cell)) continue;
    find_outliers(cell, out);
    find_drift(cell, out);
    find_impossible(cell, out);
    find_trace(cell, out);
  }
  return out.take();
}

}  // namespace triptych
