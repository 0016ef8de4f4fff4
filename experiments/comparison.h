// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// run_comparison(): the cells of one workload point, from engines to result rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/result.h"
#include "db/rows.h"
#include "db/store.h"
#include "engine/checkpoint.h"
#include "engine/engine.h"
#include "engine/weights.h"
#include "experiments/environment.h"
#include "experiments/plan.h"
#include "experiments/plan_estimate.h"
#include "experiments/progress.h"
#include "experiments/prompt_pool.h"
#include "experiments/runner.h"
#include "experiments/spec.h"

namespace triptych {

/// Weights of one checkpoint, loaded once a scheme and shared by the engines that use it.
class WeightCache {
 public:
  explicit WeightCache(std::shared_ptr<const Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}
  [[nodiscard]] Result<std::shared_ptr<const ModelWeights>> load(WeightScheme scheme);
  /// Forgets every other scheme; memory is freed when the last engine with it is gone.
  void keep_only(const std::set<WeightScheme>& schemes);

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::map<WeightScheme, std::shared_ptr<const ModelWeights>> weights_;
};

/// What the comparisons of a run share.
struct RunContext {
  const ExperimentSpec& spec;
  const PreparedExperiment& prepared;
  const RunOptions& options;
  db::Store& store;
  WeightCache& weights;
  ModelShapes& shapes;
  Progress& progress;
  SystemProbe probe;
  db::RunRow run;  ///< With ceilings.

  [[nodiscard]] bool interrupted() const {
    return options.interrupted != nullptr && options.interrupted->load();
  }
};

enum class ComparisonEnd : uint8_t {
  kDone,
  kInterrupted,
  kDeviceLost,  ///< What is missing needs a process whose device context is whole.
};

/// Runs what is missing of one comparison: builds engines, compares outputs, warms up, times the
/// blocks that are not stored yet (one transaction each), traces, and ends with the results in one
/// transaction. `cells` are the rows of the database, in the order of comparison.cells. A cell that
/// cannot go on is stored as failed or skipped, and the others go on without it; after the loss of
/// the device in another process, with all blocks that were stored.
/// Errors: those of Store and of decompose_cells.
[[nodiscard]] Result<ComparisonEnd> run_comparison(RunContext& context,
                                                   const Comparison& comparison,
                                                   std::span<const db::CellRow> cells);

/// Row of one timed pass. Errors: kCorrupt if the engine gave a request no token or times that run
/// backwards.
[[nodiscard]] Result<db::BlockRow> make_block_row(const GenerateResult& result,
                                                  std::span<const Request> requests);

}  // namespace triptych
