// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: an experiment spec, its plan and the estimate. The canonical text of an accepted
// spec parses to the same plan.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/checkpoint.h"
#include "experiments/plan.h"
#include "experiments/plan_estimate.h"
#include "experiments/spec.h"

namespace triptych {
namespace {

// A spec must name files that exist; the inputs name "status", which is always in this folder.
constexpr const char* kSpecPath = "/proc/self/input.yaml";
// A plan repeats its order for every block; inputs with millions of passes say nothing new.
constexpr int64_t kMostPasses = 100'000;

void check_spec(std::string_view text) {
  const auto spec = parse_spec_text(text, kSpecPath, {});
  if (!spec) return;
  const auto again = parse_spec_text(spec->text, kSpecPath, {});
  TRIPTYCH_CHECK(again.has_value(), again.error().to_string());
  TRIPTYCH_CHECK(again->text == spec->text, "the canonical text is not its own canonical text");

  static ModelShapes shapes(*open_synthetic({.synthetic = "llama-3.1-8b"}));
  constexpr double kMachineBytes = 64e9;
  const auto estimate = estimate_plan(*spec, shapes, kMachineBytes);
  TRIPTYCH_CHECK(estimate.has_value(), estimate.error().to_string());
  TRIPTYCH_CHECK(estimate->weight_bytes > 0 && std::isfinite(estimate->memory_bytes()) &&
                     std::isfinite(estimate->moved_bytes),
                 "an estimate that is no size");
  const auto cells = static_cast<int64_t>(spec->stacks.size() * spec->workloads.size());
  if (cells * spec->measure.blocks > kMostPasses) return;
  const auto plan = make_plan(*spec, {});
  const auto plan_again = make_plan(*again, {});
  TRIPTYCH_CHECK(plan.has_value() == plan_again.has_value(), "one of two equal specs has a plan");
  if (!plan) return;
  TRIPTYCH_CHECK(plan->hash == plan_again->hash, "equal specs with different plans");
  for (const Comparison& comparison : plan->comparisons) {
    TRIPTYCH_CHECK(comparison.cells.size() == spec->stacks.size(), "a cell a stack");
    TRIPTYCH_CHECK(std::ssize(comparison.order) == spec->measure.blocks, "an order a block");
  }
}

}  // namespace
}  // namespace triptych

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  triptych::check_spec({reinterpret_cast<const char*>(data), size});
  return 0;
}
