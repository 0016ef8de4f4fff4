// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The speed of the tool itself, for scripts/bench_cpu.sh. Each mode is a process of its own, so
// that its peak memory is its own.
//   triptych_tool_speed attribution   attributes 1,000,000 activities in memory
//   triptych_tool_speed insert FILE   stores them in a new database
//   triptych_tool_speed cells FILE    writes a database of 1,000 finished cells; times nothing
// Prints one JSON object: seconds, and the peak resident size of the process in MiB.
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "attribution/breakdown.h"
#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/units.h"
#include "experiments/trace_rows.h"
#include "tests/experiments/report_rows.h"

namespace triptych {
namespace {

constexpr int64_t kActivities = 1'000'000;
// A decode step of a model of 30 layers is about 250 records on each of two streams.
constexpr int64_t kPerStep = 500;
constexpr int kCells = 1'000;

void print_result(int64_t ns) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"seconds\": %.4f, \"peak_mib\": %.1f}\n", static_cast<double>(ns) / 1e9,
              static_cast<double>(usage.ru_maxrss) / 1024.0);
}

/// Decode steps whose kernels overlap on two streams, with gaps, waits and copies between them.
Trace make_trace() {
  constexpr std::array<std::string_view, 8> kNames = {
      "gemv_q4_1", "gemv_q8_0", "attention", "rms_norm", "rope", "swiglu", "argmax", "kv_append"};
  constexpr int64_t kUs = 1'000;
  Trace trace;
  RandomStream random(1);
  int64_t now = 1;
  for (int64_t step = 0; step < kActivities / kPerStep; ++step) {
    const int64_t start = now;
    for (int64_t i = 0; i < kPerStep; ++i) {
      Activity activity;
      const uint64_t pick = random.below(20);
      activity.kind = pick == 0   ? ActivityKind::kSync
                      : pick == 1 ? ActivityKind::kMemcpy
                                  : ActivityKind::kKernel;
      activity.name_id = trace.names.intern(kNames[random.below(kNames.size())]);
      activity.stream_id = static_cast<int32_t>(i % 2);
      activity.start_ns = now;
      activity.end_ns = now + static_cast<int64_t>(random.below(20 * kUs));
      activity.correlation_id = static_cast<uint64_t>(step * kPerStep + i + 1);
      trace.activities.push_back(activity);
      now += static_cast<int64_t>(random.below(12 * kUs));
    }
    now += 20 * kUs;
    trace.phases.push_back({PhaseKind::kDecode, step, 1, start, now});
  }
  test::require(trace.finish());
  return trace;
}

int time_attribution() {
  const Trace trace = make_trace();
  const int64_t start = now_ns();
  const auto attribution = attribute(trace, Classifier::built_in());
  const int64_t elapsed = now_ns() - start;
  if (!attribution) {
    std::fprintf(stderr, "%s\n", attribution.error().to_string().c_str());
    return 1;
  }
  print_result(elapsed);
  return 0;
}

/// Cells of the four stacks at as many workload points as it takes; ids are set in place.
std::vector<db::CellRow> make_cells(int count) {
  constexpr std::array<const char*, 4> kStacks = {"baseline", "intermediate", "full", "corner"};
  std::vector<db::CellRow> cells;
  for (int i = 0; i < count; ++i) {
    const auto stack = static_cast<size_t>(i) % kStacks.size();
    cells.push_back(test::example_cell(kStacks[stack], static_cast<int64_t>(stack),
                                       str_format("c=%d,prompt=32,output=64", i / 4)));
  }
  return cells;
}

db::Store new_store(const std::filesystem::path& path) {
  TRIPTYCH_CHECK(!std::filesystem::exists(path), "the database must not exist: " + path.string());
  auto store = db::Store::open(path, db::OpenMode::kReadWrite);
  TRIPTYCH_CHECK(store.has_value(), store.error().to_string());
  return std::move(*store);
}

int time_insert(const std::filesystem::path& path) {
  db::Store store = new_store(path);
  db::RunRow run = test::example_run();
  std::vector<db::CellRow> cells = make_cells(1);
  test::require(store.insert_run(run, cells));
  const auto row = make_trace_row(cells[0].cell_id, make_trace(), Classifier::built_in());
  TRIPTYCH_CHECK(row.has_value(), row.error().to_string());
  const int64_t start = now_ns();
  test::require(store.insert_trace(*row));
  print_result(now_ns() - start);
  return 0;
}

int write_cells(const std::filesystem::path& path) {
  db::Store store = new_store(path);
  db::RunRow run = test::example_run();
  std::vector<db::CellRow> cells = make_cells(kCells);
  test::require(store.insert_run(run, cells));
  std::vector<db::SummaryRow> summaries;
  std::vector<int64_t> done;
  for (const db::CellRow& cell : cells) {
    test::add_measurements(store, cell, 5e6, summaries);
    done.push_back(cell.cell_id);
  }
  test::require(store.insert_results(summaries, {}, {}, done));
  test::require(store.finish_run(run.run_id, "complete", "2026-01-31T13:00:00Z"));
  return 0;
}

int run(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "attribution" && argc == 2) return time_attribution();
  if (mode == "insert" && argc == 3) return time_insert(argv[2]);
  if (mode == "cells" && argc == 3) return write_cells(argv[2]);
  std::fprintf(stderr, "usage: %s attribution | insert FILE | cells FILE\n", argv[0]);
  return 2;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) { return triptych::run(argc, argv); }
