// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/random.h"
#include "tests/experiments/measurement_builder.h"

namespace triptych {
namespace {

using test::block;
using test::cell;

const BootstrapOptions kFewResamples{.resamples = 200, .seed = 3};

TEST(Summary, MediansOverRequestsThenBlocks) {
  CellMeasurement measured = cell("baseline", 100, 0);
  measured.blocks = {block(0, 10, {4, 6}), block(1, 30, {8, 8}), block(2, 20, {6, 8})};
  std::map<std::string, double> medians;
  for (const db::SummaryRow& row : summarize(measured, kFewResamples)) {
    medians[row.metric] = row.median;
    EXPECT_EQ(row.blocks, 3);
    EXPECT_LE(row.lo, row.median);
    EXPECT_GE(row.hi, row.median);
  }
  EXPECT_EQ(medians["tpot_ns"], 7);
  EXPECT_EQ(medians["ttft_ns"], 20);
  EXPECT_DOUBLE_EQ(medians["ns_per_token"], 34.0 / 3);
  EXPECT_DOUBLE_EQ(medians["tokens_per_s"], 3e9 / 34);
}

TEST(Summary, OneTokenHasNoTpotAndNoBlocksNoRows) {
  CellMeasurement measured = cell("baseline", 100, 0);
  EXPECT_TRUE(summarize(measured, kFewResamples).empty());
  measured.blocks = {block(0, 10, {})};
  for (const db::SummaryRow& row : summarize(measured, kFewResamples)) {
    EXPECT_NE(row.metric, "tpot_ns");
  }
}

TEST(Summary, DecompositionSumsToTheTotalForRandomCosts) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomStream random(seed);
    std::vector<CellMeasurement> cells = {cell("a", 1, 0), cell("b", 1, 0), cell("c", 1, 0),
                                          cell("d", 1, 0)};
    for (CellMeasurement& measured : cells) {
      for (int64_t b = 0; b < 6; ++b) {
        measured.blocks.push_back(block(b, 1 + static_cast<int64_t>(random.below(1000)), {50}));
      }
    }
    DecomposeSpec spec;
    spec.name = "x";
    spec.path = {"a", "b", "c"};
    spec.corner = "d";
    const auto rows = decompose_cells(spec, cells, kFewResamples);
    ASSERT_TRUE(rows);
    double expected = 0;  // ln of the ratio of geometric means
    for (size_t b = 0; b < 6; ++b) {
      expected += std::log(ns_per_token(cells[0].blocks[b]) / ns_per_token(cells[2].blocks[b])) / 6;
    }
    std::map<std::string, double> sums;
    for (const db::DecompositionRow& row : *rows) sums[row.method] += row.log_contribution;
    EXPECT_EQ(sums.size(), 4U);
    for (const auto& [method, sum] : sums) EXPECT_NEAR(sum, expected, 1e-12) << method;
  }
}

TEST(Summary, OnlyCommonBlocksAreCompared) {
  std::vector<CellMeasurement> cells = {cell("a", 400, 6), cell("b", 100, 6)};
  cells[0].blocks[5] = block(5, 1'000'000, {1});  // b never ran this block
  cells[1].blocks.pop_back();
  DecomposeSpec spec;
  spec.name = "x";
  spec.path = {"a", "b"};
  const auto rows = decompose_cells(spec, cells, kFewResamples);
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 1U);
  EXPECT_EQ(rows->front().blocks, 5);
  EXPECT_NEAR(rows->front().log_total, std::log(4.0), 1e-12);
}

TEST(Summary, MissingStackMeansNoDecompositionMissingCornerOnlyThePath) {
  std::vector<CellMeasurement> cells = {cell("a", 400), cell("b", 200), cell("c", 100)};
  DecomposeSpec spec;
  spec.name = "x";
  spec.path = {"a", "b", "c"};
  spec.corner = "d";
  auto rows = decompose_cells(spec, cells, kFewResamples);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->size(), 2U);
  for (const db::DecompositionRow& row : *rows) EXPECT_EQ(row.method, "path");
  cells[1].row.status = "failed";
  rows = decompose_cells(spec, cells, kFewResamples);
  ASSERT_TRUE(rows);
  EXPECT_TRUE(rows->empty());
}

TEST(Summary, DilationComparesTheSameSteps) {
  db::TraceRow trace;
  trace.steps = 2;
  trace.window_ns = 30;
  // The first two gaps are 10 each; the later, slower ones were not traced.
  const std::vector<db::BlockRow> blocks = {block(0, 5, {10, 10, 90}), block(1, 5, {10, 10, 90})};
  EXPECT_EQ(trace_dilation(trace, blocks), 1.5);
  EXPECT_EQ(trace_dilation(trace, {}), std::nullopt);
  trace.steps = 0;
  EXPECT_EQ(trace_dilation(trace, blocks), std::nullopt);
}

TEST(Summary, DilationKnowsNoPromptsOfOthers) {
  db::TraceRow trace;
  trace.steps = 2;
  trace.window_ns = 30;
  // While the first request waits for its second token, the second one's prompt is read; the third
  // begins when one of them has ended.
  db::BlockRow timed = block(0, 5, {210, 10, 90});
  timed.requests[0].ttft_ns = 100;
  timed.requests.push_back({.request_index = 1, .ttft_ns = 300, .itl_ns = {10, 10}});
  timed.requests.push_back({.request_index = 2, .ttft_ns = 900, .itl_ns = {7}, .submit_ns = 500});
  EXPECT_EQ(trace_dilation(trace, {&timed, 1}), 1.5);
}

}  // namespace
}  // namespace triptych
