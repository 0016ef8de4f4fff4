// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "db/store.h"
#include "tests/db/support.h"
#include "tests/support/temp_dir.h"

namespace triptych::db {
namespace {

Store memory() { return Store::open(":memory:", OpenMode::kReadWrite).value(); }

/// A store with one run of `count` cells.
struct Fixture {
  explicit Fixture(int64_t count, Store opened = memory()) : store(std::move(opened)) {
    for (int64_t i = 0; i < count; ++i) cells.push_back(make_cell("s" + std::to_string(i), i));
    const Status status = store.insert_run(run, cells);
    TRIPTYCH_CHECK(status.has_value(), "inserting the run of a test");
  }
  Store store;
  RunRow run = make_run("test");
  std::vector<CellRow> cells;
};

BlockRow make_block(int64_t cell_id, int64_t index, size_t requests) {
  BlockRow block;
  block.cell_id = cell_id;
  block.block_index = index;
  block.started_utc = "2026-01-31T12:34:56Z";
  block.wall_ns = 1000;
  block.output_tokens = 10;
  for (size_t i = 0; i < requests; ++i) {
    block.requests.push_back({.request_index = static_cast<int64_t>(i), .itl_ns = {1, 2, 3}});
  }
  return block;
}

TEST(RoundTrip, RunsAndCells) {
  Store store = memory();
  std::vector<RunRow> written;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RunRow run = random_row<RunRow>(seed);
    run.status = seed % 2 == 0 ? "running" : "complete";
    run.blocks_planned = static_cast<int64_t>(seed);
    std::vector<CellRow> cells;
    for (uint64_t i = 0; i < 4; ++i) {
      cells.push_back(random_row<CellRow>(100 * seed + i));
      cells.back().name += std::to_string(i);
      cells.back().status = i % 2 == 0 ? "planned" : "skipped";
    }
    ASSERT_TRUE(store.insert_run(run, cells));
    EXPECT_EQ(run.run_id, static_cast<int64_t>(seed) + 1);
    for (const CellRow& cell : cells) EXPECT_EQ(cell.run_id, run.run_id);
    EXPECT_EQ(describe(store.cells(run.run_id).value()), describe(cells));
    written.push_back(run);
  }
  std::reverse(written.begin(), written.end());  // newest first
  EXPECT_EQ(describe(store.runs("").value()), describe(written));
  const auto some = store.runs(written[3].experiment).value();
  ASSERT_FALSE(some.empty());
  for (const RunRow& run : some) EXPECT_EQ(run.experiment, written[3].experiment);
}

TEST(RoundTrip, FactsAndTheirReplacement) {
  Fixture f(20);
  std::vector<CellFactsRow> written;
  for (size_t i = 0; i < f.cells.size(); ++i) {
    CellFactsRow facts = random_row<CellFactsRow>(i);
    facts.cell_id = f.cells[i].cell_id;
    if (facts.token_agreement) facts.token_agreement = random_uniform(1, i);
    ASSERT_TRUE(f.store.insert_facts(facts));
    written.push_back(facts);
  }
  EXPECT_EQ(describe(f.store.facts(f.run.run_id).value()), describe(written));
  written[4].peak_bytes = 12345;
  ASSERT_TRUE(f.store.insert_facts(written[4]));
  EXPECT_EQ(describe(f.store.facts(f.run.run_id).value()), describe(written));
}

TEST(RoundTrip, BlocksAndRequests) {
  Fixture f(2);
  std::vector<BlockRow> written;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    BlockRow block = random_row<BlockRow>(seed);
    block.cell_id = f.cells[0].cell_id;
    block.block_index = static_cast<int64_t>(seed);
    for (int64_t* count :
         {&block.order_index, &block.wall_ns, &block.output_tokens, &block.decode_steps}) {
      *count &= std::numeric_limits<int64_t>::max();
    }
    for (uint64_t i = 0; i < seed % 4; ++i) {
      block.requests.push_back(random_row<RequestRow>(1000 * seed + i));
      block.requests.back().request_index = static_cast<int64_t>(i);
    }
    ASSERT_TRUE(f.store.insert_block({&block, 1}));
    written.push_back(block);
  }
  const auto read = f.store.blocks(f.cells[0].cell_id).value();
  EXPECT_EQ(describe(read), describe(written));
  for (size_t i = 0; i < written.size(); ++i) {
    EXPECT_EQ(describe(read[i].requests), describe(written[i].requests));
  }
  EXPECT_TRUE(f.store.blocks(f.cells[1].cell_id).value().empty());
}

std::string describe_activity(const ActivityRow& a) {
  return a.kind + "|" + a.name + "|" + std::to_string(a.device_id) + "|" +
         std::to_string(a.stream_id) + "|" + std::to_string(a.start_ns) + "|" +
         std::to_string(a.end_ns) + "|" + std::to_string(a.correlation_id) + "|" +
         std::to_string(a.bytes);
}

TraceRow random_trace(uint64_t seed, int64_t cell_id) {
  RandomFill fill(seed);
  TraceRow trace;
  for_each_field(trace, fill);
  trace.cell_id = cell_id;
  trace.tokens = 100;
  trace.steps = 10;
  trace.window_ns = 0;
  for (int i = 0; i < 5; ++i) for_each_field(trace.phases.emplace_back(), fill);
  for (int i = 0; i < 40; ++i) {
    ActivityRow& a = trace.activities.emplace_back();
    fill("", a.kind);
    fill("", a.name);
    fill("", a.device_id);
    fill("", a.stream_id);
    fill("", a.start_ns);
    fill("", a.end_ns);
    fill("", a.correlation_id);
    fill("", a.bytes);
  }
  for (int32_t device = 0; device < 2; ++device) {
    for (const auto& [name, group] : {std::pair("gemm", "compute"), std::pair("memcpy", "memcpy"),
                                      std::pair("host_wait", "coordination")}) {
      const auto ns = static_cast<int64_t>(random_bits(seed, trace.token_times.size()) >> 20);
      trace.token_times.push_back({device, name, group, ns});
      trace.window_ns += ns;
    }
  }
  return trace;
}

TEST(RoundTrip, TracesNewestFirst) {
  Fixture f(2);
  EXPECT_FALSE(f.store.trace(f.cells[0].cell_id).value().has_value());
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const TraceRow trace = random_trace(seed, f.cells[0].cell_id);
    const Status status = f.store.insert_trace(trace);
    ASSERT_TRUE(status) << status.error().to_string();
    const TraceRow read = f.store.trace(f.cells[0].cell_id).value().value();
    EXPECT_EQ(describe(read), describe(trace));
    EXPECT_EQ(describe(read.phases), describe(trace.phases));
    EXPECT_EQ(describe(read.token_times), describe(trace.token_times));
    ASSERT_EQ(read.activities.size(), trace.activities.size());
    for (size_t i = 0; i < read.activities.size(); ++i) {
      EXPECT_EQ(describe_activity(read.activities[i]), describe_activity(trace.activities[i]));
    }
  }
  EXPECT_FALSE(f.store.trace(f.cells[1].cell_id).value().has_value());
}

TEST(RoundTrip, Results) {
  Fixture f(3);
  std::vector<SummaryRow> summaries;
  std::vector<DecompositionRow> decompositions;
  std::vector<ThreatRow> threats;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    summaries.push_back(random_row<SummaryRow>(seed));
    summaries.back().cell_id = f.cells[seed / 10].cell_id;
    summaries.back().metric = str_format("metric%02d", static_cast<int>(seed));
    summaries.back().blocks = 1 + static_cast<int64_t>(seed);
    decompositions.push_back(random_row<DecompositionRow>(seed));
    DecompositionRow& d = decompositions.back();
    d.run_id = f.run.run_id;
    d.comparison = "c";
    d.decomposition = "builtin";
    d.method = "path";
    d.ordinal = static_cast<int64_t>(seed);
    d.blocks = 3;
    threats.push_back(random_row<ThreatRow>(seed));
    threats.back().run_id = f.run.run_id;
    threats.back().severity = "warning";
  }
  const std::vector<int64_t> done = {f.cells[0].cell_id, f.cells[2].cell_id};
  const Status status = f.store.insert_results(summaries, decompositions, threats, done);
  ASSERT_TRUE(status) << status.error().to_string();
  EXPECT_EQ(describe(f.store.summaries(f.run.run_id).value()), describe(summaries));
  EXPECT_EQ(describe(f.store.decompositions(f.run.run_id).value()), describe(decompositions));
  EXPECT_EQ(describe(f.store.threats(f.run.run_id).value()), describe(threats));
  const auto cells = f.store.cells(f.run.run_id).value();
  EXPECT_EQ(cells[0].status, "done");
  EXPECT_EQ(cells[1].status, "planned");
  EXPECT_EQ(cells[2].status, "done");
}

TEST(InsertResults, IsAllOrNothing) {
  Fixture f(2);
  const SummaryRow good{f.cells[0].cell_id, "tpot_ns", 1, 0, 2, 3};
  const ThreatRow bad{f.run.run_id, "", "code", "no such severity", ""};
  const std::vector<int64_t> done = {f.cells[0].cell_id};
  const Status status = f.store.insert_results({&good, 1}, {}, {&bad, 1}, done);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(f.store.summaries(f.run.run_id).value().empty());
  EXPECT_EQ(f.store.cells(f.run.run_id).value()[0].status, "planned");
}

TEST(InsertResults, AMedianMustBeANumber) {
  Fixture f(1);
  const SummaryRow row{f.cells[0].cell_id, "tpot_ns", std::nan(""), 0, 2, 3};
  const Status status = f.store.insert_results({&row, 1}, {}, {}, {});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("summary.median"), std::string::npos);
}

TEST(InsertRun, TwoCellsOfOneNameInsertNothing) {
  Store store = memory();
  RunRow run = make_run("twice");
  std::vector<CellRow> cells = {make_cell("a", 0), make_cell("a", 1)};
  const Status status = store.insert_run(run, cells);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("cell.run_id, cell.name"), std::string::npos);
  EXPECT_EQ(run.run_id, 0);
  EXPECT_EQ(cells[0].cell_id, 0);
  EXPECT_TRUE(store.runs("").value().empty());
}

TEST(InsertBlock, IsAllOrNothing) {
  Fixture f(3);
  const std::array<BlockRow, 3> first = {make_block(f.cells[0].cell_id, 0, 2),
                                         make_block(f.cells[1].cell_id, 0, 2),
                                         make_block(f.cells[2].cell_id, 0, 2)};
  ASSERT_TRUE(f.store.insert_block(first));
  // The last cell of the second block was stored before.
  std::array<BlockRow, 3> second = first;
  second[0].block_index = 1;
  second[1].block_index = 1;
  const Status status = f.store.insert_block(second);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("block.cell_id, block.block_index"), std::string::npos);
  for (const CellRow& cell : f.cells) EXPECT_EQ(f.store.blocks(cell.cell_id)->size(), 1U);
  const auto requests = f.store.query("SELECT count(*) FROM request").value();
  EXPECT_EQ(requests.rows[0][0], "6");
}

TEST(InsertBlock, NeedsItsCell) {
  Fixture f(1);
  const BlockRow orphan = make_block(999, 0, 1);
  const Status status = f.store.insert_block({&orphan, 1});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("FOREIGN KEY"), std::string::npos);
}

TEST(InsertTrace, ClassesMustSumToTheWindow) {
  Fixture f(1);
  TraceRow trace = random_trace(1, f.cells[0].cell_id);
  trace.window_ns += 1;
  const Status status = f.store.insert_trace(trace);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("sum to"), std::string::npos);
  trace.window_ns -= 1;
  trace.token_times[0].group = "coordination";  // gemm is compute
  EXPECT_FALSE(f.store.insert_trace(trace));
  EXPECT_FALSE(f.store.trace(f.cells[0].cell_id).value().has_value());
}

TEST(Update, RunAndCellStatus) {
  Fixture f(1);
  ASSERT_TRUE(f.store.finish_run(f.run.run_id, "partial", "2026-02-01T00:00:00Z"));
  ASSERT_TRUE(f.store.set_ceilings(f.run.run_id, 1.5e10, 2e11));
  ASSERT_TRUE(f.store.set_cell_status(f.cells[0].cell_id, "failed", "does not fit"));
  const RunRow run = f.store.runs("").value()[0];
  EXPECT_EQ(run.status, "partial");
  EXPECT_EQ(run.finished_utc, "2026-02-01T00:00:00Z");
  EXPECT_EQ(run.read_bytes_per_s, 1.5e10);
  EXPECT_EQ(run.f32_flops_per_s, 2e11);
  const CellRow cell = f.store.cells(f.run.run_id).value()[0];
  EXPECT_EQ(cell.status, "failed");
  EXPECT_EQ(cell.reason, "does not fit");

  for (const Status& status :
       {f.store.finish_run(99, "partial", ""), f.store.set_ceilings(99, 1, 1),
        f.store.set_cell_status(99, "done", "")}) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kNotFound);
  }
  EXPECT_FALSE(f.store.set_cell_status(f.cells[0].cell_id, "odd", ""));
}

/// Stores blocks of all cells until it is killed, and writes a byte after each commit.
[[noreturn]] void store_until_killed(const std::filesystem::path& path,
                                     const std::vector<CellRow>& cells, int acknowledge) {
  Store store = Store::open(path, OpenMode::kReadWrite).value();
  for (int64_t index = 0;; ++index) {
    std::vector<BlockRow> block;
    for (const CellRow& cell : cells) block.push_back(make_block(cell.cell_id, index, 20));
    if (!store.insert_block(block)) _exit(1);
    if (write(acknowledge, "x", 1) != 1) _exit(1);
  }
}

TEST(Kill, EarlierBlocksSurviveAndNoneIsHalf) {
  for (uint64_t trial = 0; trial < 5; ++trial) {
    const TempDir dir;
    const auto path = dir / "x.sqlite";
    const std::vector<CellRow> cells = [&path] {
      return Fixture(3, Store::open(path, OpenMode::kReadWrite).value()).cells;
    }();
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) store_until_killed(path, cells, ends[1]);
    close(ends[1]);
    int64_t acknowledged = 0;
    char byte = 0;
    for (uint64_t wanted = 1 + random_bits(3, trial) % 40; wanted > 0; --wanted) {
      ASSERT_EQ(read(ends[0], &byte, 1), 1);
      ++acknowledged;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random_bits(4, trial) % 3000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    while (read(ends[0], &byte, 1) == 1) ++acknowledged;
    close(ends[0]);

    const auto store = Store::open(path, OpenMode::kReadWrite);
    ASSERT_TRUE(store.has_value()) << store.error().to_string();
    const auto first = store->blocks(cells[0].cell_id).value();
    EXPECT_GE(static_cast<int64_t>(first.size()), acknowledged);
    EXPECT_LE(static_cast<int64_t>(first.size()), acknowledged + 1);
    for (const CellRow& cell : cells) {
      const auto blocks = store->blocks(cell.cell_id).value();
      ASSERT_EQ(blocks.size(), first.size());
      for (const BlockRow& block : blocks) EXPECT_EQ(block.requests.size(), 20U);
    }
  }
}

TEST(StoreWrite, AnInterruptedRunIsShownAsSuchUntilItGoesOn) {
  Store store = Store::open(":memory:", OpenMode::kReadWrite).value();
  RunRow finished = make_run("finished");
  RunRow running = make_run("running");
  ASSERT_TRUE(store.insert_run(finished, {}));
  ASSERT_TRUE(store.insert_run(running, {}));
  ASSERT_TRUE(store.finish_run(finished.run_id, "complete", "2026-02-01T00:00:00Z"));
  const auto states = [&store] {
    std::vector<std::string> found;
    const auto table = store.query("SELECT status FROM v_runs ORDER BY run_id");
    for (const auto& row : table->rows) {
      found.push_back(row[0].value());
    }
    return found;
  };
  EXPECT_EQ(states(), (std::vector<std::string>{"complete", "running"}));
  ASSERT_TRUE(store.mark_interrupted());
  EXPECT_EQ(states(), (std::vector<std::string>{"complete", "interrupted"}));
  const std::vector<RunRow> runs = store.runs("").value();
  EXPECT_EQ(runs.at(0).status, "running");
  EXPECT_EQ(runs.at(0).state(), "interrupted");
  EXPECT_EQ(runs.at(1).state(), "complete");
  ASSERT_TRUE(store.set_running(running.run_id));
  EXPECT_EQ(states(), (std::vector<std::string>{"complete", "running"}));
  EXPECT_FALSE(store.set_running(99));
}

}  // namespace
}  // namespace triptych::db
