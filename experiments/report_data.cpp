// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Reports for programs: long CSV and JSON.
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/report_render.h"

namespace triptych {

namespace {

using Json = nlohmann::ordered_json;
using Text = std::optional<std::string>;

/// The shortest text that reads back as the same number; absent when it is not finite.
Text exact(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return std::nullopt;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), *value).ptr;
  return std::string(text.data(), end);
}
Text whole(int64_t value) { return std::to_string(value); }

/// Nothing for the 0 of an engine that did not tell.
Text known_bytes(int64_t bytes) { return bytes > 0 ? whole(bytes) : Text(); }

Json number(std::optional<double> value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json bytes_or_null(int64_t bytes) { return bytes > 0 ? Json(bytes) : Json(nullptr); }

std::string_view unit_of(std::string_view metric) {
  if (metric == "goodput_per_s") return "requests/s";
  return metric == "tokens_per_s" ? "tokens/s" : "ns";
}

/// Rows of the long table, filled in column order.
class CsvRows {
 public:
  CsvRows() {
    table_.columns = {"section", "comparison", "stack", "method", "name",
                      "value",   "lo",         "hi",    "unit",   "text"};
    table_.numeric.assign(table_.columns.size(), false);
  }
  struct Row {
    std::string section = {};
    std::string comparison = {};
    std::string stack = {};
    std::string method = {};
    std::string name = {};
    Text value = {};
    Text lo = {};
    Text hi = {};
    std::string_view unit = {};
    std::string text = {};
  };
  void add(const Row& row) {
    table_.rows.push_back({row.section, row.comparison, optional(row.stack), optional(row.method),
                           row.name, row.value, row.lo, row.hi, optional(row.unit),
                           optional(row.text)});
  }
  [[nodiscard]] std::string render() const { return render_table(table_, TableFormat::kCsv); }

 private:
  static Text optional(std::string_view text) {
    return text.empty() ? Text() : Text(std::string(text));
  }
  TextTable table_;
};

std::string rank_name(const ReportRankTime& rank) {
  return "rank=" + std::to_string(rank.device_id);
}

void add_token_time(const db::CellRow& cell, const std::string& section, const std::string& method,
                    const ReportTokenTime& time, CsvRows& rows) {
  const auto add = [&](const std::string& name, int64_t value, std::string_view unit) {
    rows.add({.section = section,
              .comparison = cell.comparison,
              .stack = cell.stack,
              .method = method,
              .name = name,
              .value = whole(value),
              .unit = unit});
  };
  for (const ReportTimeClass& part : time.classes) add(part.name, part.ns, "ns");
  add("window", time.window_ns, "ns");
  add("residual", time.residual_ns, "ns");
  add("tokens", time.tokens, "tokens");
}

void add_cell(const ReportCell& cell, CsvRows& rows) {
  const auto add = [&](std::string section, std::string name, Text value, std::string_view unit) {
    rows.add({.section = std::move(section),
              .comparison = cell.row.comparison,
              .stack = cell.row.stack,
              .name = std::move(name),
              .value = std::move(value),
              .unit = unit});
  };
  rows.add({.section = "cell",
            .comparison = cell.row.comparison,
            .stack = cell.row.stack,
            .name = cell.row.status,
            .text = cell.row.reason});
  for (const auto& [metric, row] : cell.summaries) {
    rows.add({.section = "summary",
              .comparison = cell.row.comparison,
              .stack = cell.row.stack,
              .name = metric,
              .value = exact(row.median),
              .lo = exact(row.lo),
              .hi = exact(row.hi),
              .unit = unit_of(metric)});
  }
  if (cell.facts) {
    add("fact", "floor_ns_per_step", exact(cell.facts->floor_ns_per_step), "ns");
    add("fact", "floor_ratio", exact(cell.floor_ratio()), "ratio");
    add("fact", "weight_bytes", known_bytes(cell.facts->weight_bytes), "bytes");
    add("fact", "peak_bytes", known_bytes(cell.facts->peak_bytes), "bytes");
    add("fact", "token_agreement", exact(cell.facts->token_agreement), "ratio");
    add("fact", "max_logit_error", exact(cell.facts->max_logit_error), "logit");
    add("fact", "perplexity", exact(cell.facts->perplexity), "perplexity");
    add("fact", "trace_dilation", exact(cell.facts->trace_dilation), "ratio");
  }
  if (cell.serving) {
    add("serving", "requests_per_s", exact(cell.serving->requests_per_s), "requests/s");
    add("serving", "goodput_per_s", exact(cell.serving->goodput_per_s), "requests/s");
    add("serving", "slo_attainment", exact(cell.serving->slo_attainment), "ratio");
    add("serving", "preemptions", whole(cell.serving->preemptions), "");
  }
  for (const auto& [metric, row] : cell.latencies) {
    add("latency", metric + "_p50", exact(row.p50_ns), "ns");
    add("latency", metric + "_p90", exact(row.p90_ns), "ns");
    add("latency", metric + "_p99", exact(row.p99_ns), "ns");
  }
  if (!cell.token_time) return;
  add_token_time(cell.row, "token_time", "", *cell.token_time, rows);
  for (const ReportRankTime& rank : cell.ranks) {
    add_token_time(cell.row, "rank_time", rank_name(rank), rank.time, rows);
  }
}

void add_factor(const db::DecompositionRow& row, CsvRows& rows) {
  const auto add = [&](std::string name, Text value, Text lo, Text hi, std::string_view unit) {
    rows.add({.section = "decomposition:" + row.decomposition,
              .comparison = row.comparison,
              .method = row.method,
              .name = std::move(name),
              .value = std::move(value),
              .lo = std::move(lo),
              .hi = std::move(hi),
              .unit = unit,
              .text = row.confounded});
  };
  if (row.ordinal == 0) {
    add("ln_total", exact(row.log_total), exact(row.log_total_lo), exact(row.log_total_hi), "ln");
  }
  add("ln:" + row.factor_name, exact(row.log_contribution), exact(row.log_lo), exact(row.log_hi),
      "ln");
  add("share:" + row.factor_name, exact(row.log_share), exact(row.share_lo), exact(row.share_hi),
      "ratio");
}

void add_threat(const db::ThreatRow& row, CsvRows& rows) {
  rows.add({.section = "threat",
            .comparison = row.comparison,
            .method = row.severity,
            .name = row.code,
            .text = row.message});
}

Json run_json(const db::RunRow& run) {
  return {{"run_id", run.run_id},
          {"experiment", run.experiment},
          {"question", run.question},
          {"started_utc", run.started_utc},
          {"finished_utc", run.finished_utc ? Json(*run.finished_utc) : Json(nullptr)},
          {"status", run.state()},
          {"blocks_planned", run.blocks_planned},
          {"seed", run.seed},
          {"plan_hash", run.plan_hash},
          {"program_version", run.program_version},
          {"git_sha", run.git_sha},
          {"git_dirty", run.git_dirty},
          {"compiler", run.compiler},
          {"cpu_model", run.cpu_model},
          {"cores", run.cores},
          {"memory_bytes", run.memory_bytes},
          {"os_kernel", run.os_kernel},
          {"read_bytes_per_s", number(run.read_bytes_per_s)},
          {"f32_flops_per_s", number(run.f32_flops_per_s)}};
}

Json token_time_json(const ReportTokenTime& time) {
  Json classes = Json::object();
  for (const ReportTimeClass& part : time.classes) classes[part.name] = part.ns;
  return {{"window_ns", time.window_ns},
          {"tokens", time.tokens},
          {"residual_ns", time.residual_ns},
          {"classes_ns", std::move(classes)}};
}

Json cell_json(const ReportCell& cell) {
  const db::CellRow& row = cell.row;
  Json json = {{"stack", row.stack},
               {"runtime", row.runtime},
               {"weights", row.weights},
               {"kv", row.kv},
               {"threads", row.threads},
               {"device", row.device},
               {"model", row.model},
               {"model_origin", row.model_origin},
               {"status", row.status},
               {"reason", row.reason},
               {"parallel", row.parallel},
               {"kv_cache_tokens", row.kv_cache_tokens},
               {"prefill_chunk", row.prefill_chunk}};
  Json summaries = Json::object();
  for (const auto& [metric, summary] : cell.summaries) {
    summaries[metric] = {{"median", number(summary.median)},
                         {"lo", number(summary.lo)},
                         {"hi", number(summary.hi)},
                         {"blocks", summary.blocks}};
  }
  json["summaries"] = std::move(summaries);
  if (cell.facts) {
    json["linear"] = cell.facts->linear;
    json["floor_ns_per_step"] = number(cell.facts->floor_ns_per_step);
    json["floor_ratio"] = number(cell.floor_ratio());
    json["weight_bytes"] = bytes_or_null(cell.facts->weight_bytes);
    json["peak_bytes"] = bytes_or_null(cell.facts->peak_bytes);
    json["token_agreement"] = number(cell.facts->token_agreement);
    json["max_logit_error"] = number(cell.facts->max_logit_error);
    json["perplexity"] = number(cell.facts->perplexity);
    json["trace_dilation"] = number(cell.facts->trace_dilation);
  }
  if (cell.serving) {
    json["serving"] = {{"requests_per_s", number(cell.serving->requests_per_s)},
                       {"goodput_per_s", number(cell.serving->goodput_per_s)},
                       {"slo_attainment", number(cell.serving->slo_attainment)},
                       {"preemptions", cell.serving->preemptions}};
    Json latencies = Json::object();
    for (const auto& [metric, latency] : cell.latencies) {
      latencies[metric] = {{"p50_ns", number(latency.p50_ns)},
                           {"p90_ns", number(latency.p90_ns)},
                           {"p99_ns", number(latency.p99_ns)},
                           {"samples", latency.samples}};
    }
    json["latencies"] = std::move(latencies);
  }
  if (cell.token_time) json["token_time"] = token_time_json(*cell.token_time);
  for (const ReportRankTime& rank : cell.ranks) {
    Json of_rank = {{"rank", rank.device_id}};
    of_rank.update(token_time_json(rank.time));
    json["token_time"]["ranks"].push_back(std::move(of_rank));
  }
  return json;
}

Json factor_json(const db::DecompositionRow& row) {
  return {{"decomposition", row.decomposition},
          {"method", row.method},
          {"factor_name", row.factor_name},
          {"from", row.from_stack},
          {"to", row.to_stack},
          {"ln", number(row.log_contribution)},
          {"ln_lo", number(row.log_lo)},
          {"ln_hi", number(row.log_hi)},
          {"log_share", number(row.log_share)},
          {"share_lo", number(row.share_lo)},
          {"share_hi", number(row.share_hi)},
          {"ln_total", number(row.log_total)},
          {"ln_total_lo", number(row.log_total_lo)},
          {"ln_total_hi", number(row.log_total_hi)},
          {"blocks", row.blocks},
          {"metric", row.metric},
          {"confounded", row.confounded}};
}

Json threats_json(const std::vector<db::ThreatRow>& rows) {
  Json json = Json::array();
  for (const db::ThreatRow& row : rows) {
    json.push_back({{"code", row.code}, {"severity", row.severity}, {"message", row.message}});
  }
  return json;
}

}  // namespace

std::string render_report_csv(const ReportData& data) {
  CsvRows rows;
  rows.add({.section = "run",
            .name = "run_id",
            .value = whole(data.run.run_id),
            .text = data.run.experiment});
  for (const ReportComparison& comparison : data.comparisons) {
    for (const ReportCell& cell : comparison.cells) add_cell(cell, rows);
    for (const db::DecompositionRow& row : comparison.factors) add_factor(row, rows);
    for (const db::ThreatRow& row : comparison.threats) add_threat(row, rows);
  }
  for (const db::ThreatRow& row : data.threats) add_threat(row, rows);
  return rows.render();
}

std::string render_report_json(const ReportData& data) {
  Json comparisons = Json::array();
  for (const ReportComparison& comparison : data.comparisons) {
    Json cells = Json::array();
    for (const ReportCell& cell : comparison.cells) cells.push_back(cell_json(cell));
    Json factors = Json::array();
    for (const db::DecompositionRow& row : comparison.factors) factors.push_back(factor_json(row));
    comparisons.push_back({{"comparison", comparison.label},
                           {"cells", std::move(cells)},
                           {"decomposition", std::move(factors)},
                           {"threats", threats_json(comparison.threats)}});
  }
  const Json json = {{"run", run_json(data.run)},
                     {"comparisons", std::move(comparisons)},
                     {"threats", threats_json(data.threats)}};
  // Names come from the user's files; bytes that are no UTF-8 are replaced, not fatal.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace triptych
