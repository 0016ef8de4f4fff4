// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// make_plan(): a spec becomes cells, block order and estimates. Pure: no model is loaded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "experiments/spec.h"

namespace triptych {

/// Everything outside the spec that decides a cell's content hash.
struct PlanInputs {
  std::string model_hash;
  std::string model_name;
  std::string model_origin;
  bool model_is_fallback = false;
  std::string prompt_pool_hash;
  std::string arrival_trace_hash = {};  ///< "" without traces.
  std::string binary_hash;
  /// What stacks with `engine: command` run (command_hash()), by the name of the stack.
  std::map<std::string, std::string> command_hashes = {};
};

struct PlannedCell {
  size_t stack = 0;  ///< Index into ExperimentSpec::stacks.
  std::string name;  ///< "full@c=1,prompt=32,output=64"
  std::string hash;  ///< Of every axis, the workload and the inputs; not of the blocks.
};

/// Cells at one workload point, measured in interleaved blocks.
struct Comparison {
  size_t workload = 0;  ///< Index into ExperimentSpec::workloads.
  std::string label;
  std::vector<PlannedCell> cells;
  /// order[b] = the cells of block b in the order they run (indices into `cells`): a permutation
  /// drawn from the seed, or the identity when `order: sequential`.
  std::vector<std::vector<size_t>> order;
};

struct RunPlan {
  std::vector<Comparison> comparisons;
  std::string hash;  ///< Of the experiment's name, all cells, `measure` and `decompose`.
};

/// Errors: kInvalidArgument with the place in the spec: a rung that changes more than one axis (the
/// runtime of another engine belongs to the axis `engine`), another engine behind a built-in one, a
/// corner that is not the baseline with what the second rung changes (for the
/// usual path: the baseline's runtime, the full stack's weights), unless `confounded` says why;
/// more passes than any machine can run.
[[nodiscard]] Result<RunPlan> make_plan(const ExperimentSpec& spec, const PlanInputs& inputs);

/// Name of the factor between two stacks: "runtime" (or the one feature that it adds: "arena"),
/// "kernel_quantization", "engine" (another program, and with it another runtime and harness), or
/// "runtime+kv+..." when several axes change; "identical" when none does.
[[nodiscard]] std::string factor_name(const StackSpec& from, const StackSpec& to);

}  // namespace triptych
