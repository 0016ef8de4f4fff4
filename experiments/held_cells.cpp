// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/held_cells.h"

#include <algorithm>

#include "base/strings.h"

namespace triptych {

bool all_done(const std::vector<db::CellRow>& cells) {
  return std::all_of(cells.begin(), cells.end(),
                     [](const db::CellRow& cell) { return cell.status == "done"; });
}

bool finished(const std::vector<db::CellRow>& cells) {
  return std::none_of(cells.begin(), cells.end(),
                      [](const db::CellRow& cell) { return cell.status == "planned"; });
}

std::vector<db::CellRow> rows_of(const Comparison& comparison,
                                 const std::vector<db::CellRow>& rows) {
  std::vector<db::CellRow> found;
  for (const PlannedCell& cell : comparison.cells) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const db::CellRow& candidate) {
      return candidate.comparison == comparison.label && candidate.cell_hash == cell.hash;
    });
    if (row == rows.end()) return {};
    found.push_back(*row);
  }
  return found;
}

std::string HeldCells::to_string() const {
  const std::string source =
      str_format(" (run %lld, %s)", static_cast<long long>(run_id), date.c_str());
  std::vector<std::string> reasons;  // each once: the cells of a stack often share theirs
  size_t unmeasured = 0;
  for (const db::CellRow& cell : cells) {
    if (cell.status == "done") continue;
    ++unmeasured;
    if (std::ranges::find(reasons, cell.reason) == reasons.end()) reasons.push_back(cell.reason);
  }
  if (unmeasured == 0) return str_format("%zu cells are complete", cells.size()) + source;
  constexpr size_t kShown = 3;  // the report has all of them
  if (reasons.size() > kShown) {
    const size_t more = reasons.size() - kShown;
    reasons.resize(kShown);
    reasons.push_back(str_format("%zu more reasons", more));
  }
  return str_format("%zu of %zu cells complete, %zu failed or skipped: ", cells.size() - unmeasured,
                    cells.size(), unmeasured) +
         join(reasons, "; ") + source;
}

}  // namespace triptych
