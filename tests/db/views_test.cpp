// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The views are the stable interface: names, order and meaning of their columns.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "db/migrate.h"
#include "db/store.h"
#include "tests/db/support.h"

namespace triptych::db {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class Views : public testing::Test {
 protected:
  /// A run whose cells are the given stacks; returns their ids.
  std::vector<int64_t> add_run(const std::string& experiment,
                               const std::vector<std::string>& stacks) {
    RunRow run = make_run(experiment);
    std::vector<CellRow> cells;
    for (const std::string& stack : stacks) {
      cells.push_back(make_cell(stack, static_cast<int64_t>(cells.size())));
    }
    EXPECT_TRUE(store_.insert_run(run, cells));
    run_id_ = run.run_id;
    std::vector<int64_t> ids;
    for (const CellRow& cell : cells) ids.push_back(cell.cell_id);
    return ids;
  }

  void finish_cell(int64_t cell_id, double tpot) {
    const std::vector<SummaryRow> rows = {{cell_id, "tpot_ns", tpot, tpot - 1, tpot + 1, 3},
                                          {cell_id, "ttft_ns", 500, 1, 2, 3},
                                          {cell_id, "tokens_per_s", 30, -kInf, kInf, 3},
                                          {cell_id, "ns_per_token", 33, 32, 34, 3}};
    EXPECT_TRUE(store_.insert_results(rows, {}, {}, std::vector<int64_t>{cell_id}));
  }

  Store::Table query(const std::string& sql) {
    auto table = store_.query(sql);
    EXPECT_TRUE(table.has_value()) << table.error().to_string();
    return std::move(*table);
  }

  /// The rows as "a|b|c", with "NULL".
  std::vector<std::string> rows(const std::string& sql) {
    std::vector<std::string> texts;
    for (const auto& row : query(sql).rows) {
      std::string text;
      for (const auto& value : row) {
        if (!text.empty()) text += "|";
        text += value.value_or("NULL");
      }
      texts.push_back(text);
    }
    return texts;
  }

  Store store_ = Store::open(":memory:", OpenMode::kReadWrite).value();
  int64_t run_id_ = 0;
};

using Lines = std::vector<std::string>;

TEST_F(Views, LeadingColumnsAreStable) {
  const std::map<std::string, Lines> promised = {
      {"v_stack_summary",
       {"experiment", "cell", "stack", "device", "batch", "tpot_ns_median", "tpot_ns_lo",
        "tpot_ns_hi", "ttft_ns_median", "tokens_per_s", "floor_ratio", "peak_bytes",
        "token_agreement"}},
      {"v_decomposition",
       {"experiment", "workload", "factor_name", "factor", "factor_lo", "factor_hi",
        "log_contribution", "log_share", "method"}},
      {"v_token_time", {"experiment", "cell", "stack", "class", "ns_per_token"}},
      {"v_threats", {"experiment", "workload", "code", "severity", "message", "run_id"}},
      {"v_runs",
       {"run_id", "experiment", "status", "started_utc", "finished_utc", "cells", "cells_done",
        "blocks_done", "blocks_planned", "git_sha", "cpu_model", "gpu_name"}}};
  for (const auto& [view, columns] : promised) {
    Lines found = query("SELECT * FROM " + view).columns;
    ASSERT_GE(found.size(), columns.size());
    found.resize(columns.size());
    EXPECT_EQ(found, columns) << view;
  }
  EXPECT_EQ(query("SELECT * FROM v_stack_summary").columns,
            query("SELECT * FROM v_history").columns);
}

TEST_F(Views, EveryViewCanBeRead) {
  for (const View& view : views()) {
    EXPECT_TRUE(query("SELECT * FROM " + std::string(view.name)).rows.empty());
  }
}

TEST_F(Views, StackSummaryShowsWhatWasStored) {
  const auto ids = add_run("exp", {"baseline"});
  finish_cell(ids[0], 300);
  ASSERT_TRUE(store_.insert_facts({.cell_id = ids[0],
                                   .linear = "dot",
                                   .weight_bytes = 1000,
                                   .peak_bytes = 2000,
                                   .floor_ns_per_step = 150,
                                   .token_agreement = 0.75,
                                   .max_logit_error = 0.5,
                                   .perplexity = 12.5,
                                   .trace_dilation = 1.25}));
  EXPECT_EQ(rows("SELECT experiment, cell, stack, device, batch, tpot_ns_median, tpot_ns_lo, "
                 "tpot_ns_hi, ttft_ns_median, tokens_per_s, floor_ratio, peak_bytes, "
                 "token_agreement, ns_per_token_median, ns_per_token_lo, ns_per_token_hi, "
                 "perplexity, max_logit_error, trace_dilation, weight_bytes, floor_ns_per_step, "
                 "linear, status FROM v_stack_summary"),
            (Lines{"exp|baseline@c=1,prompt=32,output=64|baseline|cpu|1|300|299|301|500|30|2|2000|"
                   "0.75|33|32|34|12.5|0.5|1.25|1000|150|dot|done"}));
}

TEST_F(Views, MemoryThatNobodyToldIsNull) {
  const auto ids = add_run("exp", {"baseline"});
  finish_cell(ids[0], 300);
  ASSERT_TRUE(store_.insert_facts({.cell_id = ids[0], .linear = "x", .floor_ns_per_step = 150}));
  EXPECT_EQ(rows("SELECT peak_bytes, weight_bytes FROM v_stack_summary"), Lines{"NULL|NULL"});
}

TEST_F(Views, StackSummaryTakesTheNewestDoneElseTheNewest) {
  const auto first = add_run("exp", {"a", "b", "c"});
  finish_cell(first[0], 100);
  finish_cell(first[1], 110);
  const auto second = add_run("exp", {"a", "b", "c"});
  finish_cell(second[0], 200);
  ASSERT_TRUE(store_.set_cell_status(first[2], "failed", "old reason"));
  ASSERT_TRUE(store_.set_cell_status(second[2], "skipped", "does not fit"));
  const auto other = add_run("other", {"a"});
  EXPECT_EQ(rows("SELECT experiment, stack, tpot_ns_median, run_id, status, reason "
                 "FROM v_stack_summary"),
            (Lines{"exp|a|200|2|done|", "exp|b|110|1|done|", "exp|c|NULL|2|skipped|does not fit",
                   "other|a|NULL|3|planned|"}));
  EXPECT_EQ(rows("SELECT stack, tpot_ns_median, run_id FROM v_history WHERE experiment = 'exp'"),
            (Lines{"a|200|2", "b|NULL|2", "c|NULL|2", "a|100|1", "b|110|1", "c|NULL|1"}));
}

TEST_F(Views, StackSummaryFollowsTheOrderOfTheSpec) {
  add_run("exp", {"zeta", "alpha", "mid"});
  EXPECT_EQ(rows("SELECT stack FROM v_stack_summary"), (Lines{"zeta", "alpha", "mid"}));
}

DecompositionRow row_of(int64_t run_id, const std::string& method, int64_t ordinal, double log) {
  DecompositionRow row;
  row.run_id = run_id;
  row.comparison = "c=1";
  row.decomposition = "builtin";
  row.method = method;
  row.ordinal = ordinal;
  row.factor_name = "f" + std::to_string(ordinal);
  row.log_contribution = log;
  row.log_lo = -kInf;
  row.log_hi = log + 1;
  row.blocks = 3;
  row.metric = "ns_per_token";
  return row;
}

TEST_F(Views, DecompositionShowsTheNewestRunAndSums) {
  for (int run = 0; run < 2; ++run) {
    add_run("exp", {"a"});
    std::vector<DecompositionRow> stored;
    for (const char* method : {"path", "path_reverse", "shapley"}) {
      double total = 0;
      for (int64_t i = 0; i < 5; ++i) {
        stored.push_back(row_of(run_id_, method, i, random_normal(3, stored.size())));
        total += stored.back().log_contribution;
      }
      for (size_t i = stored.size() - 5; i < stored.size(); ++i) stored[i].log_total = total;
    }
    ASSERT_TRUE(store_.insert_results({}, stored, {}, {}));
  }
  EXPECT_EQ(rows("SELECT DISTINCT run_id, decomposition, workload FROM v_decomposition"),
            (Lines{"2|builtin|c=1"}));
  const auto sums = query(
      "SELECT abs(sum(log_contribution) - max(log_total)) FROM v_decomposition "
      "GROUP BY experiment, workload, decomposition, method");
  ASSERT_EQ(sums.rows.size(), 3U);
  for (const auto& row : sums.rows) EXPECT_LT(std::strtod(row[0]->c_str(), nullptr), 1e-12);
  for (const auto& row :
       query("SELECT factor, log_contribution, factor_lo, factor_hi, log_hi FROM v_decomposition")
           .rows) {
    const auto value = [&row](size_t i) { return std::strtod(row[i]->c_str(), nullptr); };
    EXPECT_EQ(value(0), std::exp(value(1)));
    EXPECT_EQ(row[2], std::nullopt);  // no lower bound
    EXPECT_EQ(value(3), std::exp(value(4)));
  }
}

TEST_F(Views, DecompositionsOfDifferentNamesComeFromTheirOwnNewestRun) {
  add_run("exp", {"a"});
  DecompositionRow paper = row_of(run_id_, "path", 0, 1);
  paper.decomposition = "paper";
  ASSERT_TRUE(store_.insert_results({}, {&paper, 1}, {}, {}));
  add_run("exp", {"a"});
  const DecompositionRow builtin = row_of(run_id_, "path", 0, 2);
  ASSERT_TRUE(store_.insert_results({}, {&builtin, 1}, {}, {}));
  EXPECT_EQ(rows("SELECT decomposition, run_id FROM v_decomposition"),
            (Lines{"builtin|2", "paper|1"}));
}

TEST_F(Views, TokenTimeHasEveryClassAndSumsToTheWindow) {
  const auto first = add_run("exp", {"a", "b"});
  const TraceRow old{.cell_id = first[0],
                     .window_ns = 5,
                     .tokens = 1,
                     .steps = 1,
                     .token_times = {{0, "gemm", "compute", 5}}};
  ASSERT_TRUE(store_.insert_trace(old));
  const auto second = add_run("exp", {"a", "b"});
  TraceRow trace{.cell_id = second[0], .window_ns = 0, .tokens = 8, .steps = 4};
  for (int32_t device = 0; device < 2; ++device) {
    trace.token_times.push_back({device, "gemm", "compute", 1000 + device});
    trace.token_times.push_back({device, "launch_gap", "coordination", 37});
    trace.window_ns += 1037 + device;
  }
  ASSERT_TRUE(store_.insert_trace(trace));
  EXPECT_EQ(rows("SELECT cell, run_id, device_id, count(*) FROM v_token_time "
                 "GROUP BY cell, device_id"),
            (Lines{"a@c=1,prompt=32,output=64|2|0|13", "a@c=1,prompt=32,output=64|2|1|13"}));
  EXPECT_EQ(rows("SELECT sum(ns) - max(window_ns), sum(ns_per_token) * max(tokens) "
                 "FROM v_token_time"),
            (Lines{"0|2075"}));
  EXPECT_EQ(rows("SELECT class, class_group, ns, ns_per_token FROM v_token_time "
                 "WHERE device_id = 1 AND ns > 0"),
            (Lines{"gemm|compute|1001|125.125", "launch_gap|coordination|37|4.625"}));
}

TEST_F(Views, DeviceTimeByNameAndPhase) {
  const auto cells = add_run("exp", {"a"});
  TraceRow trace{.cell_id = cells[0]};
  trace.phases = {
      {"prefill", 0, 8, 100, 200}, {"decode", 0, 1, 200, 250}, {"decode", 1, 1, 260, 300}};
  trace.activities = {{"runtime", "launch", 0, 0, 100, 110, 1, 0},
                      {"kernel", "product", 0, 0, 110, 150, 1, 0},
                      {"kernel", "product", 0, 0, 190, 215, 2, 0},  // counts where it starts
                      {"kernel", "product", 0, 0, 220, 230, 3, 0},
                      {"kernel", "product", 0, 0, 260, 275, 4, 0},
                      {"memcpy", "copy", 0, 0, 290, 291, 5, 8},
                      {"kernel", "late", 0, 0, 255, 259, 6, 0},  // between two steps
                      {"kernel", "inverted", 0, 0, 210, 205, 7, 0}};
  ASSERT_TRUE(store_.insert_trace(trace));
  EXPECT_EQ(rows("SELECT phase, kind, name, records, ns, phase_ns FROM v_device_time"),
            (Lines{"prefill|kernel|product|2|65|100", "prefill|runtime|launch|1|10|100",
                   "decode|kernel|product|2|25|90", "decode|memcpy|copy|1|1|90",
                   "NULL|kernel|late|1|4|NULL"}));
}

TEST_F(Views, ThreatsNewestAndWorstFirst) {
  for (int run = 0; run < 2; ++run) {
    add_run("exp", {"a"});
    const std::vector<ThreatRow> threats = {{run_id_, "", "few_blocks", "note", "3 blocks"},
                                            {run_id_, "c=1", "outputs_differ", "serious", "x"},
                                            {run_id_, "c=1", "machine_load", "warning", "y"}};
    ASSERT_TRUE(store_.insert_results({}, {}, threats, {}));
  }
  EXPECT_EQ(
      rows("SELECT run_id, workload, code, severity FROM v_threats"),
      (Lines{"2|c=1|outputs_differ|serious", "2|c=1|machine_load|warning", "2||few_blocks|note",
             "1|c=1|outputs_differ|serious", "1|c=1|machine_load|warning", "1||few_blocks|note"}));
}

TEST_F(Views, RunsBlocksAndRequests) {
  const auto ids = add_run("exp", {"a", "b"});
  BlockRow block;
  block.block_index = 0;
  block.wall_ns = 2000000000;
  block.output_tokens = 100;
  block.decode_steps = 4;
  block.prefill_steps = 2;
  block.device_wait_ns = 1940000000;
  block.requests = {{.request_index = 0, .ttft_ns = 10, .tpot_ns = 3.0, .itl_ns = {1, 2}},
                    {.request_index = 1, .ttft_ns = 20, .tpot_ns = 5.0}};
  std::vector<BlockRow> blocks = {block, block};
  blocks[0].cell_id = ids[0];
  blocks[1].cell_id = ids[1];
  blocks[1].order_index = 1;
  blocks[0].decode_host_ns = 400;
  blocks[0].prefill_host_ns = 3000;
  ASSERT_TRUE(store_.insert_block(blocks));
  finish_cell(ids[0], 100);
  EXPECT_EQ(rows("SELECT stack, host_ns_per_step, host_ns_per_decode_step, "
                 "host_ns_per_prefill_step FROM v_blocks"),
            (Lines{"a|1e+07|100|1500", "b|1e+07|NULL|NULL"}));
  EXPECT_EQ(rows("SELECT run_id, status, finished_utc, cells, cells_done, blocks_done, "
                 "blocks_planned, read_bytes_per_s FROM v_runs"),
            (Lines{"1|running|NULL|2|1|2|6|NULL"}));
  EXPECT_EQ(rows("SELECT stack, block_index, order_index, ns_per_token, tpot_ns_mean, "
                 "ttft_ns_mean, tokens_per_s, requests FROM v_blocks"),
            (Lines{"a|0|0|2e+07|4|15|50|2", "b|0|1|2e+07|4|15|50|2"}));
  EXPECT_EQ(rows("SELECT stack, request_index, ttft_ns, tpot_ns, itl_ns FROM v_requests"),
            (Lines{"a|0|10|3|[1,2]", "a|1|20|5|[]", "b|0|10|3|[1,2]", "b|1|20|5|[]"}));
}

TEST_F(Views, LatencyPercentilesAreSamples) {
  const std::vector<int64_t> cells = add_run("serve", {"full"});
  BlockRow block;
  block.cell_id = cells[0];
  block.started_utc = "u";
  block.wall_ns = 1000000000;
  block.output_tokens = 300;
  for (int64_t i = 0; i < 100; ++i) {
    RequestRow request;
    request.request_index = i;
    request.ttft_ns = 100 - i;  // 1..100
    request.e2e_ns = 1000 + i;
    request.itl_ns = {i, 2 * i};
    request.queue_ns = 7;
    if (i % 2 == 0) request.tpot_ns = 1.5;  // the others had one token
    request.preemptions = i == 3 ? 2 : 0;
    block.requests.push_back(request);
  }
  ASSERT_TRUE(store_.insert_block(std::vector<BlockRow>{block}));
  EXPECT_EQ(rows("SELECT metric, samples, p50_ns, p90_ns, p99_ns, max_ns FROM v_latency"),
            (std::vector<std::string>{"queue|100|7|7|7|7", "ttft|100|50|90|99|100",
                                      "tpot|50|1.5|1.5|1.5|1.5", "itl|200|66|158|194|198",
                                      "e2e|100|1049|1089|1098|1099"}));
  EXPECT_EQ(rows("SELECT requests, requests_per_s, tokens_per_s, slo_attainment, goodput_per_s, "
                 "preemptions FROM v_serving"),
            (std::vector<std::string>{"100|100|300|NULL|NULL|2"}));
}

TEST_F(Views, GoodputCountsRequestsThatKeptEveryPromise) {
  RunRow run = make_run("slo");
  std::vector<CellRow> cells = {make_cell("full", 0)};
  cells[0].slo_ttft_ns = 100;
  cells[0].slo_tpot_ns = 10;
  ASSERT_TRUE(store_.insert_run(run, cells));
  BlockRow block;
  block.cell_id = cells[0].cell_id;
  block.started_utc = "u";
  block.wall_ns = 500000000;
  const auto add = [&block](int64_t ttft, std::optional<double> tpot) {
    RequestRow request;
    request.request_index = static_cast<int64_t>(block.requests.size());
    request.ttft_ns = ttft;
    request.tpot_ns = tpot;
    block.requests.push_back(request);
  };
  add(100, 10.0);         // at the limit: kept
  add(101, 5.0);          // first token too late
  add(50, 10.5);          // the others too slow
  add(50, std::nullopt);  // one token only: nothing to be slow
  ASSERT_TRUE(store_.insert_block(std::vector<BlockRow>{block}));
  EXPECT_EQ(rows("SELECT meets_slo FROM v_requests"),
            (std::vector<std::string>{"1", "0", "0", "1"}));
  EXPECT_EQ(rows("SELECT slo_attainment, goodput_per_s FROM v_serving"),
            (std::vector<std::string>{"0.5|4"}));
}

}  // namespace
}  // namespace triptych::db
