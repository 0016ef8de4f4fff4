// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Report: the rows of one run, arranged by comparison and printed in four formats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "db/rows.h"
#include "db/store.h"

namespace triptych {

/// Exclusive time of one class over the decode steps of a cell's traced pass.
struct ReportTimeClass {
  std::string name;   ///< "gemm", ...
  std::string group;  ///< "compute", "coordination", "memcpy", "unclassified".
  int64_t ns = 0;     ///< Sum over devices.
};

/// Where the time of a token goes. The classes sum to window_ns; residual_ns is what is left.
struct ReportTokenTime {
  int64_t window_ns = 0;
  int64_t tokens = 0;
  int64_t residual_ns = 0;
  std::vector<ReportTimeClass> classes;  ///< In the order of kTimeClassNames.
};

/// The part of one device: its own window, classes and residual.
struct ReportRankTime {
  int32_t device_id = 0;  ///< The rank, where ranks are threads of the CPU.
  ReportTokenTime time;
};

struct ReportCell {
  db::CellRow row;
  std::optional<db::CellFactsRow> facts;            ///< Absent for cells that did not run.
  std::map<std::string, db::SummaryRow> summaries;  ///< By metric: "tpot_ns", ...
  std::optional<ReportTokenTime> token_time;        ///< Mean over devices when divided by tokens.
  std::vector<ReportRankTime> ranks;                ///< By device; empty when there is only one.
  std::optional<db::ServingRow> serving;            ///< With arrivals, promises or a KV budget.
  std::map<std::string, db::LatencyRow> latencies;  ///< The same; by metric: "ttft", ...
  /// Median TPOT / floor of a decode step; absent without both.
  [[nodiscard]] std::optional<double> floor_ratio() const;
};

struct ReportComparison {
  std::string label;                          ///< "c=1,prompt=32,output=64"
  std::vector<ReportCell> cells;              ///< In the order of the stacks in the spec.
  std::vector<db::DecompositionRow> factors;  ///< By decomposition, method, ordinal.
  std::vector<db::ThreatRow> threats;
};

struct ReportData {
  db::RunRow run;
  std::vector<ReportComparison> comparisons;
  std::vector<db::ThreatRow> threats;  ///< Those of the whole run.
};

/// Reads one run. Errors: kNotFound; those of Store.
[[nodiscard]] Result<ReportData> load_report(const db::Store& store, int64_t run_id);
/// The newest run of `experiment` ("" = of any experiment). Errors: kNotFound, naming the
/// experiments that the database has.
[[nodiscard]] Result<int64_t> newest_run(const db::Store& store, std::string_view experiment);

enum class ReportFormat : uint8_t { kTerminal, kMarkdown, kCsv, kJson };
/// "terminal", "markdown", "csv", "json". Errors: kInvalidArgument with the nearest name.
[[nodiscard]] Result<ReportFormat> parse_report_format(std::string_view text);

struct ReportContext {
  std::string database;                    ///< Path printed at the end; "" = leave out.
  std::vector<std::string> next_commands;  ///< Commands to try, printed last (terminal only).
};

/// Pure: the same data gives the same text. Terminal text is ASCII, at most 100 columns wide.
/// CSV is long: one row per number (section, comparison, stack, method, name, value, lo, hi, unit).
[[nodiscard]] std::string render_report(const ReportData& data, ReportFormat format,
                                        const ReportContext& context);

}  // namespace triptych
