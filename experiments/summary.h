// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// From the blocks of a comparison to the rows of its results: medians and decompositions. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attribution/stats.h"
#include "base/result.h"
#include "db/rows.h"
#include "experiments/spec.h"

namespace triptych {

/// Everything that was measured of one cell.
struct CellMeasurement {
  db::CellRow row;
  StackSpec stack;
  std::vector<db::BlockRow> blocks;  ///< Ordered by block_index.
  std::optional<db::CellFactsRow> facts;
  std::optional<db::TraceRow> trace;
  std::string trace_error;  ///< Why there is no trace although one was asked for.
  [[nodiscard]] bool usable() const { return row.status != "failed" && row.status != "skipped"; }
};

/// Wall time of a pass per output token, ns: what a decomposition divides in a closed loop.
[[nodiscard]] double ns_per_token(const db::BlockRow& block);
/// Latency from submission to last token, summed over the requests of a pass, per output token, ns:
/// what a decomposition divides in an open loop, where the arrivals decide how long a pass takes.
[[nodiscard]] double e2e_ns_per_token(const db::BlockRow& block);
/// What a decomposition divides for a cell: "ns_per_token" or "e2e_ns_per_token".
[[nodiscard]] std::string_view cost_metric(const db::CellRow& cell);
[[nodiscard]] double cost(const db::CellRow& cell, const db::BlockRow& block);
/// Median TPOT over the requests of a pass, ns; absent when every request has one token.
[[nodiscard]] std::optional<double> tpot_ns(const db::BlockRow& block);
/// Median TTFT over the requests of a pass, ns.
[[nodiscard]] double ttft_ns(const db::BlockRow& block);

/// tpot_ns, ttft_ns, e2e_ns, tokens_per_s, ns_per_token, e2e_ns_per_token, and with a promise
/// goodput_per_s: one value a block, their median and its bootstrap interval. No rows without
/// blocks.
[[nodiscard]] std::vector<db::SummaryRow> summarize(const CellMeasurement& cell,
                                                    const BootstrapOptions& options);

/// One entry of `decompose` at one workload point. Only blocks that all its stacks have are used,
/// so that the pairing of blocks holds. Empty when a stack of the path has no blocks here; a corner
/// without blocks leaves the path alone. Errors: those of decompose_path and decompose_2x2.
[[nodiscard]] Result<std::vector<db::DecompositionRow>> decompose_cells(
    const DecomposeSpec& spec, std::span<const CellMeasurement> cells,
    const BootstrapOptions& options);

/// Mean decode step of the traced pass / that of the timed passes over as many steps, from where
/// all prompts of the first wave are read. Absent without decode steps in the trace or gaps in the
/// blocks.
[[nodiscard]] std::optional<double> trace_dilation(const db::TraceRow& trace,
                                                   std::span<const db::BlockRow> blocks);

}  // namespace triptych
