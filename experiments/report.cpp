// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/report.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/strings.h"
#include "experiments/report_render.h"

namespace triptych {

namespace {

constexpr std::array<std::string_view, 4> kFormatNames = {"terminal", "markdown", "csv", "json"};

void add_class(const db::CellTimeRow& row, ReportTokenTime& time) {
  const auto same = std::find_if(time.classes.begin(), time.classes.end(),
                                 [&](const auto& part) { return part.name == row.time_class; });
  if (same == time.classes.end()) {
    time.classes.push_back({row.time_class, row.group, row.ns});
  } else {
    same->ns += row.ns;
  }
  time.residual_ns -= row.ns;
}

/// Rows come by device, so a device is new when it is not the last one.
void add_rank_class(const db::CellTimeRow& row, std::vector<ReportRankTime>& ranks) {
  if (ranks.empty() || ranks.back().device_id != row.device_id) {
    ranks.emplace_back().device_id = row.device_id;
  }
  add_class(row, ranks.back().time);
}

/// Every device has the windows of all steps, so each has the same part of their sum.
void set_windows(ReportCell& cell) {
  const auto devices = static_cast<int64_t>(cell.ranks.size());
  for (ReportRankTime& rank : cell.ranks) {
    rank.time.window_ns = cell.token_time->window_ns / devices;
    rank.time.tokens = cell.token_time->tokens / devices;
    rank.time.residual_ns += rank.time.window_ns;
  }
  if (devices == 1) cell.ranks.clear();
}

Status load_token_times(const db::Store& store, int64_t run_id,
                        std::unordered_map<int64_t, ReportCell>& by_id) {
  TRIPTYCH_TRY(const std::vector<db::CellTimeRow> rows, store.cell_times(run_id));
  for (const db::CellTimeRow& row : rows) {
    ReportCell& cell = by_id[row.cell_id];
    if (!cell.token_time) {
      cell.token_time = {.window_ns = row.window_ns,
                         .tokens = row.tokens,
                         .residual_ns = row.window_ns,
                         .classes = {}};
    }
    add_class(row, *cell.token_time);
    add_rank_class(row, cell.ranks);
  }
  for (auto& [cell_id, cell] : by_id) set_windows(cell);
  return {};
}

/// Percentiles and goodput, where the workload has arrivals or promises: a closed loop without
/// either is described by its medians.
Status load_serving(const db::Store& store, int64_t run_id, std::span<const db::CellRow> cells,
                    std::unordered_map<int64_t, ReportCell>& by_id) {
  const bool asked = std::any_of(cells.begin(), cells.end(), [](const db::CellRow& cell) {
    return cell.arrivals != "closed" || cell.slo_ttft_ns || cell.slo_tpot_ns || cell.slo_e2e_ns ||
           cell.kv_cache_tokens > 0;
  });
  if (!asked) return {};
  TRIPTYCH_TRY(const std::vector<db::ServingRow> serving, store.serving(run_id));
  TRIPTYCH_TRY(const std::vector<db::LatencyRow> latencies, store.latencies(run_id));
  for (const db::ServingRow& row : serving) by_id[row.cell_id].serving = row;
  for (const db::LatencyRow& row : latencies) by_id[row.cell_id].latencies[row.metric] = row;
  return {};
}

Result<db::RunRow> find_run(const db::Store& store, int64_t run_id) {
  TRIPTYCH_TRY(const std::vector<db::RunRow> runs, store.runs(""));
  for (const db::RunRow& run : runs) {
    if (run.run_id == run_id) return run;
  }
  return fail(ErrorCode::kNotFound,
              str_format("there is no run %lld", static_cast<long long>(run_id)));
}

/// The comparison of that label; a new one at the end if there is none yet.
ReportComparison& comparison_of(ReportData& data, std::unordered_map<std::string, size_t>& index,
                                const std::string& label) {
  const auto [found, added] = index.emplace(label, data.comparisons.size());
  if (added) data.comparisons.emplace_back().label = label;
  return data.comparisons[found->second];
}

Status load_cells(const db::Store& store, ReportData& data,
                  std::unordered_map<std::string, size_t>& index) {
  const int64_t run_id = data.run.run_id;
  TRIPTYCH_TRY(const std::vector<db::CellRow> cells, store.cells(run_id));
  TRIPTYCH_TRY(const std::vector<db::CellFactsRow> facts, store.facts(run_id));
  TRIPTYCH_TRY(const std::vector<db::SummaryRow> summaries, store.summaries(run_id));
  std::unordered_map<int64_t, ReportCell> by_id;
  for (const db::CellFactsRow& row : facts) by_id[row.cell_id].facts = row;
  for (const db::SummaryRow& row : summaries) by_id[row.cell_id].summaries[row.metric] = row;
  TRIPTYCH_RETURN_IF_ERROR(load_token_times(store, run_id, by_id));
  TRIPTYCH_RETURN_IF_ERROR(load_serving(store, run_id, cells, by_id));
  for (const db::CellRow& row : cells) {
    ReportCell& cell = by_id[row.cell_id];
    cell.row = row;
    comparison_of(data, index, row.comparison).cells.push_back(std::move(cell));
  }
  for (ReportComparison& comparison : data.comparisons) {
    std::stable_sort(
        comparison.cells.begin(), comparison.cells.end(),
        [](const auto& a, const auto& b) { return a.row.stack_index < b.row.stack_index; });
  }
  return {};
}

/// Position in which the methods of a decomposition are shown.
int method_position(const std::string& method) {
  constexpr std::array<std::string_view, 4> kOrder = {"path", "path_reverse", "shapley",
                                                      "interaction"};
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), method) - kOrder.begin());
}

}  // namespace

std::optional<double> ReportCell::floor_ratio() const {
  const auto tpot = summaries.find("tpot_ns");
  if (tpot == summaries.end() || !facts || facts->floor_ns_per_step <= 0) return std::nullopt;
  return tpot->second.median / facts->floor_ns_per_step;
}

Result<ReportData> load_report(const db::Store& store, int64_t run_id) {
  ReportData data;
  TRIPTYCH_TRY(data.run, find_run(store, run_id));
  std::unordered_map<std::string, size_t> index;
  TRIPTYCH_RETURN_IF_ERROR(load_cells(store, data, index));
  TRIPTYCH_TRY(const std::vector<db::DecompositionRow> factors, store.decompositions(run_id));
  for (const db::DecompositionRow& row : factors) {
    comparison_of(data, index, row.comparison).factors.push_back(row);
  }
  TRIPTYCH_TRY(const std::vector<db::ThreatRow> threats, store.threats(run_id));
  for (const db::ThreatRow& row : threats) {
    (row.comparison.empty() ? data.threats : comparison_of(data, index, row.comparison).threats)
        .push_back(row);
  }
  for (ReportComparison& comparison : data.comparisons) {
    std::stable_sort(comparison.factors.begin(), comparison.factors.end(),
                     [](const auto& a, const auto& b) {
                       if (a.decomposition != b.decomposition) {
                         return a.decomposition < b.decomposition;
                       }
                       return std::pair(method_position(a.method), a.ordinal) <
                              std::pair(method_position(b.method), b.ordinal);
                     });
  }
  return data;
}

Result<int64_t> newest_run(const db::Store& store, std::string_view experiment) {
  TRIPTYCH_TRY(const std::vector<db::RunRow> runs, store.runs(""));
  std::vector<std::string> names;
  for (const db::RunRow& run : runs) {
    if (experiment.empty() || run.experiment == experiment) return run.run_id;
    if (std::find(names.begin(), names.end(), run.experiment) == names.end()) {
      names.push_back(run.experiment);
    }
  }
  if (names.empty()) return fail(ErrorCode::kNotFound, "the database holds no run");
  return fail(ErrorCode::kNotFound, "there is no run of '" + std::string(experiment) +
                                        "'; the database has: " + join(names, ", "));
}

Result<ReportFormat> parse_report_format(std::string_view text) {
  const auto found = std::find(kFormatNames.begin(), kFormatNames.end(), text);
  if (found != kFormatNames.end()) {
    return static_cast<ReportFormat>(found - kFormatNames.begin());
  }
  const std::vector<std::string> names(kFormatNames.begin(), kFormatNames.end());
  const std::string hint = nearest(text, names);
  return fail(ErrorCode::kInvalidArgument,
              "unknown report format '" + std::string(text) + "', expected " + join(names, ", ") +
                  (hint.empty() ? "" : "; did you mean '" + hint + "'?"));
}

std::string render_report(const ReportData& data, ReportFormat format,
                          const ReportContext& context) {
  switch (format) {
    case ReportFormat::kTerminal:
      return render_terminal(make_document(data, context));
    case ReportFormat::kMarkdown:
      return render_markdown(make_document(data, context));
    case ReportFormat::kCsv:
      return render_report_csv(data);
    case ReportFormat::kJson:
      return render_report_json(data);
  }
  TRIPTYCH_CHECK(false, "a report format is missing in render_report()");
}

}  // namespace triptych
