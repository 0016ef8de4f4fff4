// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Measurements of cells, made by hand.
#pragma once

#include <string>
#include <vector>

#include "experiments/summary.h"

namespace triptych::test {

/// A pass of one request: TTFT and gaps in ns; the wall time is their sum.
inline db::BlockRow block(int64_t index, int64_t ttft_ns, const std::vector<int64_t>& gaps) {
  db::BlockRow row;
  row.block_index = index;
  db::RequestRow request;
  request.ttft_ns = ttft_ns;
  request.itl_ns = gaps;
  request.e2e_ns = ttft_ns;
  for (const int64_t gap : gaps) request.e2e_ns += gap;
  request.output_tokens = static_cast<int64_t>(gaps.size()) + 1;
  if (!gaps.empty()) {
    request.tpot_ns =
        static_cast<double>(request.e2e_ns - ttft_ns) / static_cast<double>(gaps.size());
  }
  row.wall_ns = request.e2e_ns;
  row.output_tokens = request.output_tokens;
  row.requests.push_back(request);
  return row;
}

/// A healthy cell: `blocks` equal blocks of 2 * cost_ns wall time for two tokens.
inline CellMeasurement cell(const std::string& stack, int64_t cost_ns, int64_t blocks = 10) {
  CellMeasurement result;
  result.row.cell_id = 1;
  result.row.run_id = 1;
  result.row.stack = stack;
  result.row.comparison = "c=1";
  result.row.status = "done";
  result.stack.name = stack;
  result.facts = db::CellFactsRow{};
  result.facts->token_agreement = 1.0;
  result.facts->max_logit_error = 0.0;
  result.facts->perplexity = 10.0;
  for (int64_t b = 0; b < blocks; ++b) {
    result.blocks.push_back(block(b, cost_ns, {cost_ns}));
    result.blocks.back().cpu_mhz = 2000.0;
  }
  return result;
}

}  // namespace triptych::test
