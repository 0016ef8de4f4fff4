// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A finished run, written by hand: what the golden reports are made from.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "db/store.h"

namespace triptych::test {

inline void require(const Status& status) {
  TRIPTYCH_CHECK(status.has_value(), status.error().to_string());
}

inline db::Store memory_store() {
  auto store = db::Store::open(":memory:", db::OpenMode::kReadWrite);
  TRIPTYCH_CHECK(store.has_value(), store.error().to_string());
  return std::move(*store);
}

inline db::RunRow example_run() {
  db::RunRow run;
  run.experiment = "example";
  run.question = "How much is the runtime, how much the kernel?";
  run.plan_hash = "p";
  run.spec_path = "example.yaml";
  run.blocks_planned = 10;
  run.seed = 1;
  run.started_utc = "2026-01-31T12:34:56Z";
  run.status = "running";
  run.program_version = "1.2.3";
  run.git_sha = "0123456789abcdef0123456789abcdef01234567";
  run.compiler = "GNU 12.2.0 -O2";
  run.cpu_model = "Example CPU";
  run.cores = 2;
  run.memory_bytes = int64_t{8} << 30;
  run.os_kernel = "Linux 6.1.0 x86_64";
  return run;
}

inline db::CellRow example_cell(const std::string& stack, int64_t index, const std::string& label) {
  db::CellRow cell;
  cell.cell_hash = stack + label;
  cell.name = stack + "@" + label;
  cell.comparison = label;
  cell.stack = stack;
  cell.stack_index = index;
  cell.engine = "builtin";
  cell.runtime = index == 0 || index == 3 ? "eager" : "fused+paged_kv+arena";
  cell.weights = index >= 2 ? "w4a16-g32" : "f16";
  cell.linear = "auto";
  cell.kv = "f16";
  cell.parallel = "tp=1,instances=1";
  cell.device = "cpu";
  cell.threads = 2;
  cell.concurrency_total = 1;
  cell.concurrency_per_instance = 1;
  cell.model = "Example-1B";
  cell.model_origin = "gguf:example.gguf";
  cell.status = "planned";
  return cell;
}

/// Rank 1 computes less than rank 0 and waits for it.
inline void add_second_rank(db::TraceRow& trace) {
  const int64_t fifth = trace.window_ns / 5;
  trace.token_times.push_back({1, "gemm", "compute", 3 * fifth});
  trace.token_times.push_back({1, "comm_transfer", "coordination", fifth});
  trace.token_times.push_back({1, "comm_wait", "coordination", trace.window_ns - 4 * fifth});
  trace.window_ns *= 2;
  trace.tokens *= 2;
  trace.steps *= 2;
}

inline void add_measurements(db::Store& store, const db::CellRow& cell, double tpot_ns,
                             std::vector<db::SummaryRow>& summaries) {
  summaries.push_back({cell.cell_id, "tpot_ns", tpot_ns, tpot_ns * 0.98, tpot_ns * 1.03, 10});
  summaries.push_back({cell.cell_id, "ttft_ns", tpot_ns * 8, tpot_ns * 7.9, tpot_ns * 8.2, 10});
  summaries.push_back(
      {cell.cell_id, "tokens_per_s", 0.9e9 / tpot_ns, 0.8e9 / tpot_ns, 0.95e9 / tpot_ns, 10});
  summaries.push_back(
      {cell.cell_id, "ns_per_token", tpot_ns * 1.1, tpot_ns * 1.08, tpot_ns * 1.12, 10});
  db::CellFactsRow facts;
  facts.cell_id = cell.cell_id;
  facts.linear = "q=gemv";
  facts.weight_bytes = 270'000'000;
  facts.peak_bytes = 300'000'000;
  facts.floor_ns_per_step = tpot_ns / 1.5;
  facts.token_agreement = cell.stack_index < 2 ? 1.0 : 0.969;
  facts.max_logit_error = cell.stack_index < 2 ? 0.0 : 0.25;
  facts.perplexity = 12.5;
  facts.trace_dilation = 1.01;
  require(store.insert_facts(facts));
  db::TraceRow trace;
  trace.cell_id = cell.cell_id;
  trace.source = "host_tracer";
  trace.clock = "steady";
  trace.steps = 10;
  trace.tokens = 10;
  trace.window_ns = static_cast<int64_t>(tpot_ns) * 10;
  const int64_t tenth = trace.window_ns / 10;
  trace.token_times = {{0, "gemm", "compute", 6 * tenth},
                       {0, "attention", "compute", tenth},
                       {0, "memcpy", "memcpy", cell.stack_index == 0 ? tenth : 0},
                       {0, "launch_gap", "coordination", tenth},
                       {0, "host_wait", "coordination", cell.stack_index == 0 ? 0 : tenth},
                       {0, "unclassified", "unclassified", trace.window_ns - 9 * tenth}};
  if (cell.stack_index == 2) add_second_rank(trace);
  require(store.insert_trace(trace));
}

inline db::DecompositionRow factor(int64_t run_id, const std::string& method, int64_t ordinal,
                                   const std::string& name, double value) {
  db::DecompositionRow row;
  row.run_id = run_id;
  row.comparison = "c=1,prompt=32,output=64";
  row.decomposition = "builtin";
  row.method = method;
  row.ordinal = ordinal;
  row.factor_name = name;
  if (method == "path") {
    row.from_stack = ordinal == 0 ? "baseline" : "intermediate";
    row.to_stack = ordinal == 0 ? "intermediate" : "full";
  }
  row.log_contribution = std::log(value);
  row.log_lo = row.log_contribution - 0.02;
  row.log_hi = row.log_contribution + 0.03;
  row.log_total = std::log(4.0);
  row.log_total_lo = row.log_total - 0.05;
  row.log_total_hi = row.log_total + 0.05;
  row.log_share = row.log_contribution / row.log_total;
  row.share_lo = *row.log_share - 0.02;
  row.share_hi = *row.log_share + 0.02;
  row.blocks = 10;
  row.metric = "ns_per_token";
  return row;
}

/// Two comparisons: one with four stacks of which one was skipped, one that is not finished.
inline int64_t insert_example(db::Store& store) {
  const std::string first = "c=1,prompt=32,output=64";
  db::RunRow run = example_run();
  std::vector<db::CellRow> cells = {
      example_cell("baseline", 0, first), example_cell("intermediate", 1, first),
      example_cell("full", 2, first), example_cell("corner", 3, first),
      example_cell("baseline", 0, "c=8,prompt=32,output=64")};
  require(store.insert_run(run, cells));
  require(store.set_ceilings(run.run_id, 12.34e9, 56.7e9));
  std::vector<db::SummaryRow> summaries;
  add_measurements(store, cells[0], 12'345'678, summaries);
  add_measurements(store, cells[1], 6'000'000, summaries);
  add_measurements(store, cells[2], 3'100'000, summaries);
  summaries[8].lo = -std::numeric_limits<double>::infinity();
  require(store.set_cell_status(cells[3].cell_id, "skipped",
                                "q: K = 100 does not fit groups of 32 | see the model"));
  const std::vector<db::DecompositionRow> factors = {
      factor(run.run_id, "path", 0, "runtime", 2.0),
      factor(run.run_id, "path", 1, "kernel_quantization", 2.0),
      factor(run.run_id, "path_reverse", 0, "kernel_quantization", 5.0),
      factor(run.run_id, "path_reverse", 1, "runtime", 0.8)};
  const std::vector<db::ThreatRow> threats = {
      {run.run_id, first, "clock_unreadable", "note", "the system does not tell the CPU's clock"},
      {run.run_id, first, "outputs_differ", "warning",
       "full: 96.9 % of its tokens are the baseline's (largest logit error 0.25)"},
      {run.run_id, "", "machine_load", "warning", "load average 3.10 on 2 cores"}};
  const std::vector<int64_t> done = {cells[0].cell_id, cells[1].cell_id, cells[2].cell_id};
  require(store.insert_results(summaries, factors, threats, done));
  return run.run_id;
}

}  // namespace triptych::test
