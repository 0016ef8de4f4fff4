// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What earlier runs of the database hold of a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/rows.h"
#include "experiments/plan.h"

namespace triptych {

/// Is every cell measured?
[[nodiscard]] bool all_done(const std::vector<db::CellRow>& cells);
/// Is every cell at its end, measured or not?
[[nodiscard]] bool finished(const std::vector<db::CellRow>& cells);

/// The rows among `rows` that are the cells of `comparison`; empty unless all of them are there.
[[nodiscard]] std::vector<db::CellRow> rows_of(const Comparison& comparison,
                                               const std::vector<db::CellRow>& rows);

/// Finished cells of a plan that one run holds.
struct HeldCells {
  int64_t run_id = 0;
  std::string date;
  std::vector<db::CellRow> cells;

  /// "4 cells are complete (run 1, ...)", or how many are, and why the others are not.
  [[nodiscard]] std::string to_string() const;
};

}  // namespace triptych
