// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Threats to validity that a run finds in itself. Pure: rows in, rows out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "db/rows.h"
#include "experiments/spec.h"
#include "experiments/summary.h"

namespace triptych {

/// What can be said before anything is measured.
struct RunConditions {
  int64_t run_id = 0;
  int64_t cores = 0;
  double load_average = 0;      ///< At the start of the run.
  std::string model_origin;     ///< "synthetic:llama-tiny", "gguf:..."
  std::string fallback_reason;  ///< "" unless `model_fallback` was used.
};

/// Codes: machine_load, synthetic_weights, model_fallback.
[[nodiscard]] std::vector<db::ThreatRow> run_threats(const RunConditions& conditions);

/// One finished comparison.
struct ComparisonEvidence {
  int64_t run_id = 0;
  std::string label;
  int64_t cores = 0;
  bool synthetic_tokens = false;  ///< Words were hashed to ids: the model has no tokenizer.
  std::span<const CellMeasurement> cells;
  std::span<const DecomposeSpec> specs;
  std::span<const db::DecompositionRow> decompositions;
};

/// Codes: few_blocks, block_outliers, drift, below_floor, wide_interval, share_refused,
/// decomposition_missing, corner_missing, outputs_differ, outputs_by_tokens, outputs_not_compared,
/// machine_load, clock_drift, clock_unreadable, trace_dilation, trace_failed, trace_of_others,
/// unclassified_time, dropped_records, harness_differs, cell_missing, confounded, synthetic_tokens.
/// Cells without blocks only count as missing.
[[nodiscard]] std::vector<db::ThreatRow> comparison_threats(const ComparisonEvidence& evidence);

}  // namespace triptych
