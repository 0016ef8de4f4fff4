// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/held_cells.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace triptych {
namespace {

db::CellRow cell(const char* hash, const char* status, const char* reason = "") {
  db::CellRow row;
  row.comparison = "c=1";
  row.cell_hash = hash;
  row.status = status;
  row.reason = reason;
  return row;
}

HeldCells held(std::vector<db::CellRow> cells) { return {3, "today", std::move(cells)}; }

TEST(HeldCells, SaysWhyCellsAreNotMeasuredEachReasonOnce) {
  EXPECT_EQ(held({cell("a", "done"), cell("b", "done")}).to_string(),
            "2 cells are complete (run 3, today)");
  EXPECT_EQ(held({cell("a", "done"), cell("b", "skipped", "x"), cell("c", "failed", "x"),
                  cell("d", "failed", "y")})
                .to_string(),
            "1 of 4 cells complete, 3 failed or skipped: x; y (run 3, today)");
  EXPECT_EQ(held({cell("a", "failed", "v"), cell("b", "failed", "w"), cell("c", "failed", "x"),
                  cell("d", "failed", "y"), cell("e", "failed", "z")})
                .to_string(),
            "0 of 5 cells complete, 5 failed or skipped: v; w; x; 2 more reasons (run 3, today)");
}

TEST(HeldCells, FinishedIsNotDone) {
  EXPECT_TRUE(all_done({cell("a", "done")}));
  EXPECT_FALSE(all_done({cell("a", "done"), cell("b", "skipped")}));
  EXPECT_TRUE(finished({cell("a", "done"), cell("b", "skipped"), cell("c", "failed")}));
  EXPECT_FALSE(finished({cell("a", "done"), cell("b", "planned")}));
}

TEST(HeldCells, RowsOfAComparisonAreAllOrNone) {
  Comparison comparison;
  comparison.label = "c=1";
  comparison.cells = {{0, "x", "a"}, {1, "y", "b"}};
  const std::vector<db::CellRow> rows = {cell("b", "done"), cell("c", "done"), cell("a", "done")};
  const std::vector<db::CellRow> found = rows_of(comparison, rows);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].cell_hash, "a");
  EXPECT_EQ(found[1].cell_hash, "b");
  comparison.label = "c=2";
  EXPECT_TRUE(rows_of(comparison, rows).empty());
}

}  // namespace
}  // namespace triptych
