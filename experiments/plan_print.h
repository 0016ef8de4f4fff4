// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// print_plan(): a plan as text for `triptych plan`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "experiments/plan.h"
#include "experiments/plan_estimate.h"
#include "experiments/spec.h"

namespace triptych {

/// What the database holds already.
struct StoredResults {
  std::map<std::string, int64_t> done;  ///< Cell hash -> newest run in which the cell is done.
  /// Cell hash -> "skipped in run 3": the newest run in which the cell failed or was skipped.
  std::map<std::string, std::string> unmeasured;
  double read_bytes_per_s = 0;  ///< Of the newest run on the CPU; 0 = never measured.
};

struct PlanView {
  const ExperimentSpec& spec;
  const PlanInputs& inputs;
  const RunPlan& plan;
  std::string fallback_reason;
  PlanEstimate estimate;
  std::optional<int64_t> available_bytes;
  StoredResults stored;
  double cuda_read_bytes_per_s = 0;  ///< Measured now; 0 = no CUDA device here.
};

/// Pure: the same view gives the same text.
[[nodiscard]] std::string print_plan(const PlanView& view);

}  // namespace triptych
