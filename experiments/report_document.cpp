// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What a report says, before it is laid out for a terminal or as Markdown.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "attribution/time_class.h"
#include "base/strings.h"
#include "base/units.h"
#include "experiments/report_render.h"
#include "experiments/spec.h"

namespace triptych {

namespace {

using Kind = DocumentBlock::Kind;

constexpr size_t kBarWidth = 14;
constexpr size_t kNameWidth = 16;      // of a stack in a table
constexpr size_t kStacksPerTable = 4;  // side by side in 100 columns

constexpr size_t kFactorWidth = 20;

std::string shortened(const std::string& name, size_t width = kNameWidth) {
  return name.size() <= width ? name : name.substr(0, width - 1) + "~";
}

TextTable make_table(std::vector<std::string> columns) {
  TextTable table;
  table.numeric.assign(columns.size(), true);
  table.numeric[0] = false;
  table.columns = std::move(columns);
  return table;
}

void add_field(TextTable& table, std::string name, std::string value) {
  table.rows.push_back({std::move(name), std::move(value)});
}

TextTable field_table() {
  TextTable table = make_table({"", ""});
  table.numeric = {false, false};
  return table;
}

std::string bound(double value, const std::function<std::string(double)>& format) {
  return std::isfinite(value) ? format(value) : "-";
}

std::string with_interval(const std::string& middle, double lo, double hi,
                          const std::function<std::string(double)>& format) {
  return middle + " [" + bound(lo, format) + ", " + bound(hi, format) + "]";
}

/// "12.3 ms [12.1, 12.6]": the interval in the unit of the median.
std::string duration_interval(const db::SummaryRow& row) {
  const std::string text = format_duration_ns(row.median);
  const std::string unit = text.substr(text.find(' ') + 1);
  const double scale = unit == "s" ? 1e9 : unit == "ms" ? 1e6 : unit == "us" ? 1e3 : 1;
  return with_interval(text, row.lo, row.hi,
                       [&](double value) { return format_significant(value / scale, 3); });
}

const db::SummaryRow* summary(const ReportCell& cell, const std::string& metric) {
  const auto found = cell.summaries.find(metric);
  return found == cell.summaries.end() ? nullptr : &found->second;
}

void add_header(const ReportData& data, Document& document) {
  const db::RunRow& run = data.run;
  document.push_back({Kind::kTitle, run.experiment, {}});
  if (!run.question.empty()) document.push_back({Kind::kParagraph, run.question, {}});
  TextTable fields = field_table();
  if (!data.comparisons.empty() && !data.comparisons.front().cells.empty()) {
    const db::CellRow& cell = data.comparisons.front().cells.front().row;
    add_field(
        fields, "model",
        cell.model == cell.model_origin ? cell.model : cell.model + " (" + cell.model_origin + ")");
  }
  if (!run.gpu_name.empty()) {
    add_field(fields, "gpu", run.gpu_name + ", driver " + run.gpu_driver);
  }
  add_field(
      fields, "machine",
      str_format("%s, %lld cores, %s, %s", run.cpu_model.c_str(), static_cast<long long>(run.cores),
                 format_bytes(static_cast<double>(run.memory_bytes)).c_str(),
                 run.os_kernel.c_str()));
  if (run.read_bytes_per_s > 0) {
    add_field(fields, "ceilings",
              str_format("%s GB/s read, %s Gflop/s %s, measured",
                         format_significant(run.read_bytes_per_s * 1e-9, 3).c_str(),
                         format_significant(run.f32_flops_per_s * 1e-9, 3).c_str(),
                         run.gpu_name.empty() ? "f32" : "f16"));
  }
  add_field(fields, "run",
            str_format("%lld, %s, %s, %lld blocks", static_cast<long long>(run.run_id),
                       run.started_utc.c_str(), run.state().c_str(),
                       static_cast<long long>(run.blocks_planned)));
  add_field(fields, "program",
            str_format("triptych %s, %s%s, %s", run.program_version.c_str(),
                       run.git_sha.substr(0, 12).c_str(), run.git_dirty ? " with changes" : "",
                       run.compiler.c_str()));
  document.push_back({Kind::kFields, "", std::move(fields)});
}

void add_axes(const ReportComparison& comparison, Document& document) {
  TextTable fields = field_table();
  for (const ReportCell& cell : comparison.cells) {
    std::string text = str_format("%s, weights %s, kv %s, %lld threads", cell.row.runtime.c_str(),
                                  cell.row.weights.c_str(), cell.row.kv.c_str(),
                                  static_cast<long long>(cell.row.threads));
    if (cell.row.engine != "builtin") {
      text = cell.row.engine + " " + text;
      if (cell.facts) text += "; " + cell.facts->linear;
    }
    // What every usual stack has would only hide where two stacks differ.
    if (!cell.row.parallel.starts_with("tp=1,")) text += ", " + cell.row.parallel;
    if (cell.row.kv_cache_tokens > 0) {
      text += str_format(", KV of %lld tokens", static_cast<long long>(cell.row.kv_cache_tokens));
    }
    const bool cuda = cell.row.device.starts_with("cuda");
    const int64_t usual_chunk = default_prefill_chunk(cuda ? DeviceKind::kCuda : DeviceKind::kCpu);
    if (cell.row.prefill_chunk > 0 && cell.row.prefill_chunk != usual_chunk) {
      text += str_format(", chunks of %lld", static_cast<long long>(cell.row.prefill_chunk));
    }
    add_field(fields, shortened(cell.row.stack), std::move(text));
  }
  document.push_back({Kind::kCaption, "Stacks", {}});
  document.push_back({Kind::kFields, "", std::move(fields)});
}

std::vector<std::optional<std::string>> speed_row(const ReportCell& cell) {
  std::vector<std::optional<std::string>> row(7);
  row[0] = shortened(cell.row.stack);
  if (const auto* tpot = summary(cell, "tpot_ns")) row[1] = duration_interval(*tpot);
  if (const auto* ttft = summary(cell, "ttft_ns")) row[2] = format_duration_ns(ttft->median);
  if (const auto* rate = summary(cell, "tokens_per_s")) {
    row[3] = format_significant(rate->median, 3);
  }
  if (const auto ratio = cell.floor_ratio()) row[4] = format_significant(*ratio, 3) + "x";
  if (cell.facts) {
    const int64_t peak = cell.facts->peak_bytes;
    if (peak > 0) row[5] = format_bytes(static_cast<double>(peak));
    if (cell.facts->token_agreement) {
      row[6] = str_format("%.1f %%", *cell.facts->token_agreement * 100);
    }
  }
  return row;
}

void add_speed(const ReportComparison& comparison, Document& document) {
  TextTable table =
      make_table({"stack", "TPOT [95 %]", "TTFT", "tokens/s", "floor", "memory", "agree"});
  TextTable missing = field_table();
  for (const ReportCell& cell : comparison.cells) {
    if (cell.row.status == "failed" || cell.row.status == "skipped") {
      add_field(missing, shortened(cell.row.stack), cell.row.status + ": " + cell.row.reason);
    } else if (cell.row.status == "planned") {
      add_field(missing, shortened(cell.row.stack), "not finished; triptych resume continues it");
    } else {
      table.rows.push_back(speed_row(cell));
    }
  }
  document.push_back({Kind::kCaption, "Speed (median over blocks)", {}});
  if (!table.rows.empty()) {
    document.push_back({Kind::kTable, "", std::move(table)});
    document.push_back({Kind::kParagraph,
                        "floor: TPOT / the time that a step's bytes or flops take at best; memory: "
                        "peak; agree: output positions with the token of the first stack.",
                        {}});
  }
  if (!missing.rows.empty()) document.push_back({Kind::kFields, "", std::move(missing)});
}

/// "12.3 / 45.6": two percentiles in ms.
std::optional<std::string> percentiles(const ReportCell& cell, const std::string& metric) {
  const auto found = cell.latencies.find(metric);
  if (found == cell.latencies.end()) return std::nullopt;
  return format_significant(found->second.p50_ns * 1e-6, 3) + " / " +
         format_significant(found->second.p99_ns * 1e-6, 3);
}

std::string serving_note(const db::CellRow& cell) {
  std::vector<std::string> promises;
  const auto add = [&](const char* name, const std::optional<int64_t>& ns) {
    if (!ns) return;
    promises.push_back(std::string(name) + " " + format_duration_ns(static_cast<double>(*ns)));
  };
  add("TTFT", cell.slo_ttft_ns);
  add("TPOT", cell.slo_tpot_ns);
  add("e2e", cell.slo_e2e_ns);
  return "arrivals: " + cell.arrivals + "; " +
         (promises.empty() ? "nothing is promised, so there is no goodput"
                           : "goodput counts requests within " + join(promises, ", ")) +
         ".";
}

void add_serving(const ReportComparison& comparison, Document& document) {
  TextTable table = make_table(
      {"stack", "req/s", "goodput/s", "queue ms", "TTFT ms", "TPOT ms", "e2e ms", "preempted"});
  for (const ReportCell& cell : comparison.cells) {
    if (!cell.serving) continue;
    const db::ServingRow& serving = *cell.serving;
    std::optional<std::string> goodput;
    if (serving.goodput_per_s) {
      goodput = format_significant(*serving.goodput_per_s, 3) +
                str_format(" (%.0f %%)", *serving.slo_attainment * 100);
    }
    table.rows.push_back({shortened(cell.row.stack), format_significant(serving.requests_per_s, 3),
                          goodput, percentiles(cell, "queue"), percentiles(cell, "ttft"),
                          percentiles(cell, "tpot"), percentiles(cell, "e2e"),
                          std::to_string(serving.preemptions)});
  }
  if (table.rows.empty()) return;
  document.push_back({Kind::kCaption, "Serving (all requests, p50 / p99)", {}});
  document.push_back({Kind::kTable, "", std::move(table)});
  document.push_back({Kind::kParagraph, serving_note(comparison.cells.front().row), {}});
}

std::string factor_text(double log_value) { return format_significant(std::exp(log_value), 3); }

/// Rows of one method. The product of its factors is F.
void add_method(std::span<const db::DecompositionRow> rows, TextTable& table) {
  std::vector<double> logs;
  for (const db::DecompositionRow& row : rows) logs.push_back(row.log_contribution);
  const std::vector<std::string> bars = waterfall(logs, kBarWidth);
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::DecompositionRow& row = rows[i];
    std::string share = "refused";
    if (row.log_share) {
      share = str_format("%.1f %%", *row.log_share * 100);
      if (row.share_lo && row.share_hi) {
        share = with_interval(share, *row.share_lo, *row.share_hi,
                              [](double value) { return str_format("%.1f", value * 100); });
      }
    }
    table.rows.push_back({i == 0 ? row.method : std::string(),
                          shortened(row.factor_name, kFactorWidth),
                          with_interval(factor_text(row.log_contribution) + "x", row.log_lo,
                                        row.log_hi, factor_text),
                          share, bars[i]});
  }
}

/// One entry of `decompose`: its head line and a table with all its methods.
void add_decomposition(std::span<const db::DecompositionRow> rows, Document& document) {
  const db::DecompositionRow& first = rows.front();
  std::string path = first.from_stack;
  for (const db::DecompositionRow& row : rows) {
    if (row.method == "path") path += " -> " + row.to_stack;
  }
  document.push_back({Kind::kCaption, "Decomposition " + first.decomposition + ": " + path, {}});
  document.push_back({Kind::kParagraph,
                      "F = " +
                          with_interval(factor_text(first.log_total) + "x", first.log_total_lo,
                                        first.log_total_hi, factor_text) +
                          str_format(" faster (%s per output token, %lld blocks). ",
                                     first.metric == "ns_per_token" ? "wall time" : "latency",
                                     static_cast<long long>(first.blocks)) +
                          "The factors of one method multiply to F; shares are ln f / ln F." +
                          (first.confounded.empty() ? "" : " Confounded: " + first.confounded),
                      {}});
  TextTable table = make_table({"method", "factor", "f [95 %]", "log share [95 %]", "0 to ln F"});
  table.numeric = {false, false, true, true, false};
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    while (end < rows.size() && rows[end].method == rows[begin].method) ++end;
    add_method(rows.subspan(begin, end - begin), table);
    begin = end;
  }
  document.push_back({Kind::kTable, "", std::move(table)});
}

void add_decompositions(const ReportComparison& comparison, Document& document) {
  const std::span<const db::DecompositionRow> rows(comparison.factors);
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    while (end < rows.size() && rows[end].decomposition == rows[begin].decomposition) ++end;
    add_decomposition(rows.subspan(begin, end - begin), document);
    begin = end;
  }
}

/// "12.3  45.6 %": time of one token and its share.
std::string time_text(const ReportTokenTime& time, int64_t ns) {
  const double tokens = static_cast<double>(std::max<int64_t>(time.tokens, 1));
  const double window = static_cast<double>(std::max<int64_t>(time.window_ns, 1));
  return str_format("%.1f %6.2f %%", static_cast<double>(ns) / tokens * 1e-3,
                    static_cast<double>(ns) / window * 100);
}

/// What a table of times has side by side: stacks, or the ranks of one stack.
struct TimeColumn {
  std::string name;
  const ReportTokenTime* time = nullptr;
};
using TimeColumns = std::span<const TimeColumn>;

/// Adds a row with the sum, per column, of the classes that `belongs` accepts; none if all are
/// zero.
void add_time_row(const std::string& name, TimeColumns columns,
                  const std::function<bool(const ReportTimeClass&)>& belongs, TextTable& table) {
  std::vector<std::optional<std::string>> row = {name};
  bool any = false;
  for (const TimeColumn& column : columns) {
    int64_t ns = 0;
    for (const ReportTimeClass& part : column.time->classes) {
      if (belongs(part)) ns += part.ns;
    }
    any = any || ns != 0;
    row.push_back(time_text(*column.time, ns));
  }
  if (any) table.rows.push_back(std::move(row));
}

TextTable time_table(TimeColumns columns) {
  std::vector<std::string> names = {"us per token"};
  for (const TimeColumn& column : columns) names.push_back(column.name);
  TextTable table = make_table(std::move(names));
  for (const std::string group : {"compute", "coordination", "memcpy", "unclassified"}) {
    const auto in_group = [&](const ReportTimeClass& part) { return part.group == group; };
    add_time_row(group, columns, in_group, table);
    if (group != "compute" && group != "coordination") continue;  // one class of the same name
    for (const std::string_view name : kTimeClassNames) {
      add_time_row(
          "  " + std::string(name), columns,
          [&](const ReportTimeClass& part) { return part.group == group && part.name == name; },
          table);
    }
  }
  add_time_row(
      "sum", columns, [](const ReportTimeClass&) { return true; }, table);
  std::vector<std::optional<std::string>> window = {"window - sum"};
  for (const TimeColumn& column : columns) {
    window.push_back(str_format("%lld ns", static_cast<long long>(column.time->residual_ns)));
  }
  table.rows.push_back(std::move(window));
  return table;
}

void add_time_tables(const std::string& caption, TimeColumns columns, Document& document) {
  if (columns.empty()) return;
  document.push_back({Kind::kCaption, caption, {}});
  for (size_t begin = 0; begin < columns.size(); begin += kStacksPerTable) {
    const size_t count = std::min(kStacksPerTable, columns.size() - begin);
    document.push_back({Kind::kTable, "", time_table(columns.subspan(begin, count))});
  }
}

void add_token_times(const ReportComparison& comparison, Document& document) {
  std::vector<TimeColumn> stacks;
  for (const ReportCell& cell : comparison.cells) {
    if (cell.token_time) stacks.push_back({shortened(cell.row.stack), &*cell.token_time});
  }
  const bool several = std::any_of(comparison.cells.begin(), comparison.cells.end(),
                                   [](const ReportCell& cell) { return !cell.ranks.empty(); });
  add_time_tables(std::string("Where a token's time goes (decode steps of the traced pass") +
                      (several ? ", mean over ranks)" : ")"),
                  stacks, document);
  for (const ReportCell& cell : comparison.cells) {
    std::vector<TimeColumn> ranks;
    for (const ReportRankTime& rank : cell.ranks) {
      ranks.push_back({"rank " + std::to_string(rank.device_id), &rank.time});
    }
    add_time_tables("Where it goes on each rank of " + shortened(cell.row.stack), ranks, document);
  }
}

int severity_position(const std::string& severity) {
  return severity == "serious" ? 0 : severity == "warning" ? 1 : 2;
}

void add_threats(const std::string& caption, std::vector<db::ThreatRow> threats,
                 Document& document) {
  if (threats.empty()) return;
  std::stable_sort(threats.begin(), threats.end(), [](const auto& a, const auto& b) {
    return severity_position(a.severity) < severity_position(b.severity);
  });
  TextTable fields = field_table();
  for (const db::ThreatRow& threat : threats) {
    add_field(fields, threat.severity, threat.code + ": " + threat.message);
  }
  document.push_back({Kind::kCaption, caption, {}});
  document.push_back({Kind::kFields, "", std::move(fields)});
}

}  // namespace

std::vector<std::string> waterfall(const std::vector<double>& log_values, size_t width) {
  double lowest = 0;
  double highest = 0;
  double sum = 0;
  for (const double value : log_values) {
    sum += value;
    lowest = std::min(lowest, sum);
    highest = std::max(highest, sum);
  }
  const double scale = highest > lowest ? static_cast<double>(width) / (highest - lowest) : 0;
  const auto column = [&](double value) {
    return static_cast<size_t>(std::lround((value - lowest) * scale));
  };
  std::vector<std::string> bars;
  sum = 0;
  for (const double value : log_values) {
    const size_t from = column(std::min(sum, sum + value));
    const size_t to = column(std::max(sum, sum + value));
    sum += value;
    bars.push_back("[" + std::string(from, ' ') + std::string(to - from, value < 0 ? '-' : '#') +
                   std::string(width - to, ' ') + "]");
  }
  return bars;
}

Document make_document(const ReportData& data, const ReportContext& context) {
  Document document;
  add_header(data, document);
  for (const ReportComparison& comparison : data.comparisons) {
    document.push_back({Kind::kHeading, comparison.label, {}});
    add_axes(comparison, document);
    add_speed(comparison, document);
    add_serving(comparison, document);
    add_decompositions(comparison, document);
    add_token_times(comparison, document);
    add_threats("Threats to validity", comparison.threats, document);
  }
  add_threats("Threats to the whole run", data.threats, document);
  if (!context.database.empty()) {
    document.push_back({Kind::kCaption, "Database", {}});
    document.push_back({Kind::kParagraph, context.database, {}});
  }
  if (!context.next_commands.empty()) {
    TextTable commands = make_table({""});
    for (const std::string& command : context.next_commands) commands.rows.push_back({command});
    document.push_back({Kind::kCommands, "Next", std::move(commands)});
  }
  return document;
}

}  // namespace triptych
