// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// From a plan to the rows that a run starts with. Pure.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
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

/// The spec that a stored run was started with. Its path is stored as it was given, so that a
/// database can be handed on; a relative one is looked for from the working directory, then from
/// the folder of `database` and those above it. Errors: those of parse_spec_text().
[[nodiscard]] Result<ExperimentSpec> stored_spec(const db::RunRow& run,
                                                 const std::filesystem::path& database);

/// A planned cell of `comparison`. `cores` is what num_threads = 0 stands for.
[[nodiscard]] db::CellRow make_cell_row(const ExperimentSpec& spec, const PlanInputs& inputs,
                                        const Comparison& comparison, const PlannedCell& cell,
                                        const PromptPool& pool, int64_t cores);

}  // namespace triptych
