// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "base/strings.h"

namespace triptych {
namespace {

/// The axes of a stack as text: what factors are named after and what cell hashes are made of.
/// A new field of StackSpec belongs here, or two different stacks would share a hash.
struct Axis {
  std::string_view name;    ///< For people.
  std::string_view factor;  ///< Name of the factor when only this axis changes.
  std::string (*value)(const StackSpec&);
};
/// The features, and the size of chunks where it is not the usual one.
std::string runtime_text(const StackSpec& stack) {
  std::string text = stack.runtime_text();
  if (stack.prefill_chunk != default_prefill_chunk(stack.device)) {
    text += "+prefill_chunk=" + std::to_string(stack.prefill_chunk);
  }
  return text;
}

constexpr std::array<Axis, 9> kAxes = {{
    {"engine", "engine", [](const StackSpec& s) { return s.engine; }},
    {"runtime", "runtime", runtime_text},
    {"weights", "kernel_quantization",
     [](const StackSpec& s) { return std::string(weight_scheme_name(s.weights)); }},
    {"kv", "kv",
     [](const StackSpec& s) { return std::string(s.kv == KvFormat::kF32 ? "f32" : "f16"); }},
    {"threads", "threads", [](const StackSpec& s) { return std::to_string(s.num_threads); }},
    {"kv_cache_tokens", "kv_budget",
     [](const StackSpec& s) { return std::to_string(s.kv_cache_tokens); }},
    {"memory_limit", "memory_limit",
     [](const StackSpec& s) { return str_format("%.17g", s.memory_limit); }},
    {"device", "device",
     [](const StackSpec& s) {
       return std::string(s.device == DeviceKind::kCuda ? "cuda" : "cpu");
     }},
    {"parallel", "parallel", [](const StackSpec& s) { return s.parallel(); }},
}};

/// Another engine is another runtime, and has no threads, ranks and KV budget of this program's.
bool is_of_engine(const Axis& axis) {
  return axis.name != "engine" && axis.name != "weights" && axis.name != "kv";
}

std::vector<size_t> changed_axes(const StackSpec& from, const StackSpec& to) {
  std::vector<size_t> changed;
  for (size_t i = 0; i < kAxes.size(); ++i) {
    if (from.engine != to.engine && is_of_engine(kAxes[i])) continue;
    if (kAxes[i].value(from) != kAxes[i].value(to)) changed.push_back(i);
  }
  return changed;
}

std::string axis_names(const std::vector<size_t>& axes) {
  std::vector<std::string> names;
  for (const size_t axis : axes) names.emplace_back(kAxes[axis].name);
  return join(names, " and ");
}

const StackSpec& stack_named(const ExperimentSpec& spec, const std::string& name) {
  const auto found = std::find_if(spec.stacks.begin(), spec.stacks.end(),
                                  [&](const StackSpec& s) { return s.name == name; });
  TRIPTYCH_CHECK(found != spec.stacks.end(), "parse_spec() knows every stack of a path");
  return *found;
}

/// The fourth cell must differ from the first exactly by what the second rung changes.
Status check_corner(const ExperimentSpec& spec, const DecomposeSpec& decompose) {
  const StackSpec& baseline = stack_named(spec, decompose.path[0]);
  const StackSpec& intermediate = stack_named(spec, decompose.path[1]);
  const StackSpec& full = stack_named(spec, decompose.path[2]);
  const StackSpec& corner = stack_named(spec, *decompose.corner);
  const std::vector<size_t> second = changed_axes(intermediate, full);
  std::vector<std::string> wrong;
  for (size_t i = 0; i < kAxes.size(); ++i) {
    const bool of_second = std::find(second.begin(), second.end(), i) != second.end();
    const StackSpec& model = of_second ? full : baseline;
    const std::string expected = kAxes[i].value(model);
    const std::string found = kAxes[i].value(corner);
    if (found == expected) continue;
    wrong.push_back(std::string(kAxes[i].name) + " is " + found + ", but " + model.name + " has " +
                    expected);
  }
  if (wrong.empty()) return {};
  return fail(ErrorCode::kInvalidArgument,
              "decompose." + decompose.name + ": the corner \"" + corner.name +
                  "\" is not the fourth cell: its " + join(wrong, "; its ") +
                  "; correct it, or say why it stands for that cell with \"confounded: why\"",
              spec.where(decompose.place));
}

Status check_decomposition(const ExperimentSpec& spec, const DecomposeSpec& decompose) {
  if (!decompose.confounded.empty()) return {};
  const auto refuse = [&](const std::string& message) {
    return fail(ErrorCode::kInvalidArgument, "decompose." + decompose.name + ": " + message,
                spec.where(decompose.place));
  };
  std::vector<size_t> all;
  for (size_t i = 0; i + 1 < decompose.path.size(); ++i) {
    const StackSpec& from = stack_named(spec, decompose.path[i]);
    const StackSpec& to = stack_named(spec, decompose.path[i + 1]);
    const std::vector<size_t> changed = changed_axes(from, to);
    if (from.builtin() && !to.builtin()) {
      return refuse("\"" + to.name + "\" is an engine of its own behind the built-in \"" +
                    from.name +
                    "\"; external engines stand at the start of a path, or say why with "
                    "\"confounded: why\"");
    }
    if (changed.size() > 1) {
      return refuse("from \"" + from.name + "\" to \"" + to.name + "\" changes " +
                    axis_names(changed) +
                    " at once, so its factor is neither; put a stack between them, or say why "
                    "with \"confounded: why\"");
    }
    all.insert(all.end(), changed.begin(), changed.end());
  }
  if (!decompose.corner) return {};
  std::sort(all.begin(), all.end());
  if (const auto twice = std::adjacent_find(all.begin(), all.end()); twice != all.end()) {
    return refuse("both rungs change " + std::string(kAxes[*twice].name) +
                  ", so there is no fourth cell; remove \"corner\"");
  }
  return check_corner(spec, decompose);
}

/// Appends "key=value\n"; no key or value of a hash holds a line break of its own meaning.
void add_line(std::string& text, std::string_view key, std::string_view value) {
  text += key;
  text += '=';
  text += value;
  text += '\n';
}
void add_line(std::string& text, std::string_view key, int64_t value) {
  add_line(text, key, std::to_string(value));
}

std::string stack_text(const StackSpec& stack) {
  std::string text;
  for (const Axis& axis : kAxes) add_line(text, axis.name, axis.value(stack));
  return text;
}

/// `seed` draws the arrivals of a Poisson process.
std::string workload_text(const WorkloadSpec& workload, uint64_t seed) {
  std::string text;
  add_line(text, "prompt_tokens", workload.prompt_tokens);
  add_line(text, "output_tokens", workload.output_tokens);
  add_line(text, "concurrency", workload.concurrency);
  add_line(text, "requests", workload.requests);
  add_line(text, "sampling", to_string(workload.sampling));
  add_line(text, "ignore_eos", workload.ignore_eos ? 1 : 0);
  if (workload.arrivals.kind != ArrivalSpec::Kind::kClosed) {
    add_line(text, "arrivals", workload.arrivals.label());
    add_line(text, "arrivals_seed", std::to_string(seed));
  }
  const auto add_slo = [&](std::string_view key, const std::optional<double>& ms) {
    if (ms) add_line(text, key, str_format("%.17g", *ms));
  };
  add_slo("slo_ttft_ms", workload.slo.ttft_ms);
  add_slo("slo_tpot_ms", workload.slo.tpot_ms);
  add_slo("slo_e2e_ms", workload.slo.e2e_ms);
  return text;
}

std::string inputs_text(const PlanInputs& inputs) {
  std::string text;
  add_line(text, "model", inputs.model_hash);
  add_line(text, "prompts", inputs.prompt_pool_hash);
  if (!inputs.arrival_trace_hash.empty()) add_line(text, "arrivals", inputs.arrival_trace_hash);
  add_line(text, "program", inputs.binary_hash);
  return text;
}

std::vector<PlannedCell> plan_cells(const ExperimentSpec& spec, const WorkloadSpec& workload,
                                    const PlanInputs& inputs) {
  const std::string input_lines = inputs_text(inputs);
  std::vector<PlannedCell> cells;
  std::map<std::string, int64_t> seen;
  for (size_t i = 0; i < spec.stacks.size(); ++i) {
    std::string text =
        stack_text(spec.stacks[i]) + workload_text(workload, spec.measure.seed) + input_lines;
    const auto command = inputs.command_hashes.find(spec.stacks[i].name);
    if (command != inputs.command_hashes.end()) add_line(text, "command", command->second);
    // Two stacks that are alike (an A/A comparison) are two cells all the same.
    if (const int64_t copy = seen[text]++; copy > 0) add_line(text, "copy", copy);
    cells.push_back({i, spec.stacks[i].name + "@" + workload.label(), content_hash(text)});
  }
  return cells;
}

/// A permutation for each block. Block b depends on the seed, the comparison and b only, so a
/// longer run begins with the blocks of a shorter one.
std::vector<std::vector<size_t>> plan_order(const MeasureSpec& measure, size_t comparison,
                                            size_t num_cells) {
  std::vector<std::vector<size_t>> order(static_cast<size_t>(measure.blocks));
  for (size_t block = 0; block < order.size(); ++block) {
    order[block].resize(num_cells);
    std::iota(order[block].begin(), order[block].end(), size_t{0});
    if (!measure.interleaved) continue;
    RandomStream random(random_bits(random_bits(measure.seed, comparison), block));
    for (size_t i = num_cells; i > 1; --i) {  // Fisher and Yates
      std::swap(order[block][i - 1], order[block][random.below(i)]);
    }
  }
  return order;
}

std::string plan_hash(const ExperimentSpec& spec, const RunPlan& plan) {
  std::string text;
  add_line(text, "experiment", spec.experiment);
  for (const Comparison& comparison : plan.comparisons) {
    for (const PlannedCell& cell : comparison.cells) add_line(text, cell.name, cell.hash);
  }
  const MeasureSpec& measure = spec.measure;
  add_line(text, "blocks", measure.blocks);
  add_line(text, "warmup", measure.warmup);
  add_line(text, "interleaved", measure.interleaved ? 1 : 0);
  add_line(text, "trace_steps", measure.trace_steps);
  add_line(text, "seed", std::to_string(measure.seed));
  for (const DecomposeSpec& decompose : spec.decompositions) {
    add_line(text, "decompose", decompose.name);
    add_line(text, "path", join(decompose.path, ","));
    add_line(text, "corner", decompose.corner.value_or(""));
    add_line(text, "confounded", content_hash(decompose.confounded));
  }
  return content_hash(text);
}

/// The feature that `to` has beyond `from`, if that is all they differ by.
std::optional<std::string> only_added_feature(const RuntimeFeatures& from,
                                              const RuntimeFeatures& to) {
  std::optional<std::string> added;
  for (size_t i = 0; i < kRuntimeFeatureNames.size(); ++i) {
    const auto feature = static_cast<RuntimeFeature>(i);
    if (from.has(feature) == to.has(feature)) continue;
    if (from.has(feature) || added) return std::nullopt;
    added = kRuntimeFeatureNames[i];
  }
  return added;
}

}  // namespace

std::string factor_name(const StackSpec& from, const StackSpec& to) {
  std::vector<std::string> names;
  for (const size_t axis : changed_axes(from, to)) names.emplace_back(kAxes[axis].factor);
  if (names == std::vector<std::string>{"runtime"}) {
    if (const auto feature = only_added_feature(from.runtime, to.runtime)) return *feature;
  }
  return names.empty() ? "identical" : join(names, "+");
}

Result<RunPlan> make_plan(const ExperimentSpec& spec, const PlanInputs& inputs) {
  for (const DecomposeSpec& decompose : spec.decompositions) {
    TRIPTYCH_RETURN_IF_ERROR(check_decomposition(spec, decompose));
  }
  const size_t num_cells = spec.stacks.size() * spec.workloads.size();
  constexpr size_t kMaxPlacements = 10'000'000;  // cells x blocks; a run of this many never ends
  if (num_cells * static_cast<size_t>(spec.measure.blocks) > kMaxPlacements) {
    return fail(ErrorCode::kInvalidArgument,
                str_format("%zu cells in %lld blocks are more than %zu passes", num_cells,
                           static_cast<long long>(spec.measure.blocks), kMaxPlacements),
                spec.where(spec.workload_place));
  }
  RunPlan plan;
  for (size_t i = 0; i < spec.workloads.size(); ++i) {
    Comparison comparison;
    comparison.workload = i;
    comparison.label = spec.workloads[i].label();
    comparison.cells = plan_cells(spec, spec.workloads[i], inputs);
    comparison.order = plan_order(spec.measure, i, comparison.cells.size());
    plan.comparisons.push_back(std::move(comparison));
  }
  plan.hash = plan_hash(spec, plan);
  return plan;
}

}  // namespace triptych
