// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// run_experiment() and resume_run(): a plan becomes rows of the results database.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/engine.h"
#include "engine/memory_need.h"
#include "experiments/plan.h"
#include "experiments/prompt_pool.h"
#include "experiments/spec.h"
#include "kernels/cpu/ceilings.h"

namespace triptych {

using EngineFactory = std::function<Result<std::unique_ptr<Engine>>(
    std::shared_ptr<const ModelWeights> weights, const EngineOptions& options)>;

/// Read bandwidth and arithmetic rate of a device: of f32 with every core that this process may
/// use, or of f16 products on CUDA. 0 where the device cannot be measured.
[[nodiscard]] cpu::Ceilings measure_device_ceilings(DeviceKind device);

struct RunOptions {
  std::filesystem::path database = "results.sqlite";
  std::filesystem::path cache;  ///< Of models for external engines; "": see cache_folder().
  bool force = false;           ///< Measure again what the database already holds, into a new run.
  bool quiet = false;           ///< No progress on standard error.
  /// Set by a signal handler: the pass that is running ends, its block is dropped, and the call
  /// returns kInterrupted. Null: cannot be interrupted.
  const std::atomic<bool>* interrupted = nullptr;
  // Replaced by tests.
  EngineFactory make_engine = triptych::make_engine;
  std::function<cpu::Ceilings(DeviceKind)> measure_ceilings = measure_device_ceilings;
  double memory_bytes = machine_memory_bytes();
};

/// An experiment with its model opened (not loaded) and its plan made. Nothing is written.
struct PreparedExperiment {
  std::shared_ptr<const Checkpoint> checkpoint;
  ModelRef model;               ///< What `checkpoint` was opened from.
  std::string fallback_reason;  ///< Why `model_fallback` took the model's place; "" if it did not.
  std::map<std::filesystem::path, PromptPool> pools;     ///< By WorkloadSpec::prompts.
  std::map<std::filesystem::path, ArrivalTrace> traces;  ///< By ArrivalSpec::trace.
  PlanInputs inputs;
  RunPlan plan;
};

/// Opens the model (or `model_fallback`, when the model's file is missing), hashes model, prompt
/// pools and this program, and makes the plan. Errors: those of open_checkpoint and make_plan; a
/// missing prompt pool.
[[nodiscard]] Result<PreparedExperiment> prepare_experiment(const ExperimentSpec& spec);

/// Gives the requests of a workload their arrival times. Errors: those of schedule_arrivals.
[[nodiscard]] Status set_arrivals(const ExperimentSpec& spec, const PreparedExperiment& prepared,
                                  const WorkloadSpec& workload, std::span<Request> requests);

enum class RunEnd : uint8_t {
  kComplete,      ///< Every cell is done.
  kPartial,       ///< Finished, but some cells failed or were skipped; their rows say why.
  kNothingToRun,  ///< The database already holds every comparison of the plan.
  kInterrupted,   ///< Stopped by the user; resume_run() continues it.
  kDeviceLost,    ///< A cell failed and took the device with it: resume_run() continues the others,
                  ///< in another process. One cell fewer is left each time, so this ends.
};

struct RunOutcome {
  RunEnd end = RunEnd::kComplete;
  int64_t run_id = 0;   ///< The run to report on; for kNothingToRun the one that holds the cells.
  std::string message;  ///< For people: why nothing was run, how to resume. "" when finished.
  /// Every cell of the plan is measured, in this run or in those that hold the others.
  bool all_measured = false;
};

/// Runs what the database does not hold yet. An unfinished run of the same plan is continued unless
/// `force`. Cells that cannot run become rows with a reason; only what concerns the whole run is an
/// error: kBusy (another run writes to this database), those of Store, prepare_experiment.
[[nodiscard]] Result<RunOutcome> run_experiment(const ExperimentSpec& spec,
                                                const RunOptions& options);

/// Continues run `run_id`, or the newest unfinished one: exactly the blocks that are missing.
/// Errors: kNotFound (no such run, nothing unfinished), kInvalidArgument (the run is finished, or
/// model, prompts or program have changed since it began).
[[nodiscard]] Result<RunOutcome> resume_run(std::optional<int64_t> run_id,
                                            const RunOptions& options);

}  // namespace triptych
