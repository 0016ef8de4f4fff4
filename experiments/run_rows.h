// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// From a plan to the rows that a run starts with. Pure.
#pragma once

#include <string>

#include "db/rows.h"
#include "experiments/environment.h"
#include "experiments/plan.h"
#include "experiments/prompt_pool.h"
#include "experiments/spec.h"

namespace triptych {

/// A run that begins now; ceilings are not measured yet.
[[nodiscard]] db::RunRow make_run_row(const ExperimentSpec& spec, const PlanInputs& inputs,
                                      const RunPlan& plan, const Environment& environment,
                                      const BuildInfo& build);

/// A planned cell of `comparison`. `cores` is what num_threads = 0 stands for.
[[nodiscard]] db::CellRow make_cell_row(const ExperimentSpec& spec, const PlanInputs& inputs,
                                        const Comparison& comparison, const PlannedCell& cell,
                                        const PromptPool& pool, int64_t cores);

}  // namespace triptych
