// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/plan_print.h"

#include <algorithm>

#include "base/strings.h"
#include "base/units.h"
#include "experiments/table.h"

namespace triptych {
namespace {

constexpr size_t kShortHash = 12;    ///< Hex digits; enough to tell cells apart by eye.
constexpr size_t kShownBlocks = 10;  ///< Per comparison; the rest is one line.
/// Read bandwidth taken where none was measured: two channels of DDR4. Only for a lower bound.
constexpr double kAssumedBytesPerS = 20e9;

std::string short_hash(const std::string& hash) { return hash.substr(0, kShortHash); }

/// "fast" for what the word means on the CPU, so that the table fits a terminal.
std::string runtime_name(const StackSpec& stack) {
  const bool fast = stack.builtin() && stack.runtime == RuntimeFeatures::fast(DeviceKind::kCpu);
  return fast ? "fast" : stack.runtime_text();
}

std::string head(const PlanView& view) {
  std::string text = "experiment  " + view.spec.experiment + "\n";
  if (!view.spec.question.empty()) text += "question    " + view.spec.question + "\n";
  text += "model       " + view.inputs.model_name + " (" + view.inputs.model_origin + ", hash " +
          short_hash(view.inputs.model_hash) + ")\n";
  if (!view.fallback_reason.empty()) text += "            " + view.fallback_reason + "\n";
  text += "prompts     " + view.spec.workloads.front().prompts.string() + " (hash " +
          short_hash(view.inputs.prompt_pool_hash) + ")\n";
  return text + "plan        " + short_hash(view.plan.hash) + "\n";
}

/// "done in run 3", "skipped in run 3", "-".
std::string stored_text(const StoredResults& stored, const std::string& cell_hash) {
  if (const auto done = stored.done.find(cell_hash); done != stored.done.end()) {
    return str_format("done in run %lld", static_cast<long long>(done->second));
  }
  const auto unmeasured = stored.unmeasured.find(cell_hash);
  return unmeasured == stored.unmeasured.end() ? "-" : unmeasured->second;
}

std::string cells_table(const PlanView& view) {
  TextTable table;
  table.columns = {"cell", "runtime", "weights", "kv", "threads", "parallel", "hash", "database"};
  table.numeric = {false, false, false, false, true, false, false, false};
  for (const Comparison& comparison : view.plan.comparisons) {
    for (const PlannedCell& cell : comparison.cells) {
      const StackSpec& stack = view.spec.stacks[cell.stack];
      table.rows.push_back(
          {cell.name, runtime_name(stack), std::string(weight_scheme_name(stack.weights)),
           stack.kv_text(), stack.num_threads == 0 ? "all" : std::to_string(stack.num_threads),
           stack.parallel(), short_hash(cell.hash), stored_text(view.stored, cell.hash)});
    }
  }
  return render_table(table, TableFormat::kTable);
}

std::string factors(const PlanView& view) {
  if (view.spec.decompositions.empty()) return "";
  const auto stack = [&](const std::string& name) -> const StackSpec& {
    return *std::find_if(view.spec.stacks.begin(), view.spec.stacks.end(),
                         [&](const StackSpec& s) { return s.name == name; });
  };
  std::string text = "\nfactors\n";
  for (const DecomposeSpec& decompose : view.spec.decompositions) {
    text += "  " + decompose.name + ": " + decompose.path.front();
    for (size_t i = 1; i < decompose.path.size(); ++i) {
      text += " --" + factor_name(stack(decompose.path[i - 1]), stack(decompose.path[i])) + "--> " +
              decompose.path[i];
    }
    if (decompose.corner) text += "   fourth cell: " + *decompose.corner;
    text += "\n";
    if (!decompose.confounded.empty()) text += "    confounded: " + decompose.confounded + "\n";
  }
  return text;
}

std::string order(const PlanView& view) {
  const MeasureSpec& measure = view.spec.measure;
  std::string text = str_format(
      "\norder (%s, seed %llu; %lld warm-up, %lld timed blocks%s)\n",
      measure.interleaved ? "interleaved" : "sequential",
      static_cast<unsigned long long>(measure.seed), static_cast<long long>(measure.warmup),
      static_cast<long long>(measure.blocks),
      measure.trace_steps > 0
          ? str_format(", 1 traced pass of %lld steps", static_cast<long long>(measure.trace_steps))
                .c_str()
          : ", no traced pass");
  for (const Comparison& comparison : view.plan.comparisons) {
    text += "  " + comparison.label + "\n";
    const size_t shown = measure.interleaved ? kShownBlocks : 1;
    for (size_t b = 0; b < std::min(comparison.order.size(), shown); ++b) {
      text += str_format("    %3zu ", b + 1);
      for (const size_t cell : comparison.order[b]) {
        text += " " + view.spec.stacks[comparison.cells[cell].stack].name;
      }
      text += "\n";
    }
    if (comparison.order.size() > shown) {
      text += str_format("    ... %zu more%s\n", comparison.order.size() - shown,
                         measure.interleaved ? "" : ", all alike");
    }
  }
  return text;
}

std::string time_estimate(const PlanView& view) {
  const std::string moved = "the passes must read " + format_bytes(view.estimate.moved_bytes);
  const bool cuda = view.spec.device == DeviceKind::kCuda;
  const bool measured = view.stored.read_bytes_per_s > 0;
  if (cuda && view.cuda_read_bytes_per_s == 0) {
    return "\n  time    no estimate without the CUDA device, whose read bandwidth it needs; " +
           moved + "\n";
  }
  const double rate = cuda       ? view.cuda_read_bytes_per_s
                      : measured ? view.stored.read_bytes_per_s
                                 : kAssumedBytesPerS;
  const char* source = cuda       ? "measured now"
                       : measured ? "measured in the newest run"
                                  : "assumed, not measured here";
  return "\n  time    at least " + format_duration_ns(view.estimate.moved_bytes / rate * 1e9) +
         ": " + moved + " at " + format_significant(rate / 1e9, 3) + " GB/s (" + source + ")\n";
}

std::string estimates(const PlanView& view) {
  const PlanEstimate& estimate = view.estimate;
  std::string text = "\nestimate\n  memory  about " + format_bytes(estimate.memory_bytes()) + " (" +
                     format_bytes(estimate.weight_bytes) + " weights, " +
                     format_bytes(estimate.kv_bytes) + " KV cache, " +
                     format_bytes(estimate.activation_bytes) + " activations)";
  if (view.available_bytes) {
    const auto available = static_cast<double>(*view.available_bytes);
    text += " of " + format_bytes(available) +
            (view.spec.device == DeviceKind::kCuda ? " of the device: " : " available: ") +
            (estimate.memory_bytes() <= available ? "fits" : "DOES NOT FIT");
  }
  text += time_estimate(view);
  const bool external = std::any_of(view.spec.stacks.begin(), view.spec.stacks.end(),
                                    [](const StackSpec& stack) { return !stack.builtin(); });
  if (external) text += "  not in it  what engines of other projects need\n";
  if (!estimate.refused.empty()) {
    text += str_format("  skipped %zu of %zu cells, which cannot run\n", estimate.refused.size(),
                       view.spec.stacks.size() * view.spec.workloads.size());
  }
  return text;
}

}  // namespace

std::string print_plan(const PlanView& view) {
  return head(view) + "\n" + cells_table(view) + factors(view) + order(view) + estimates(view);
}

}  // namespace triptych
