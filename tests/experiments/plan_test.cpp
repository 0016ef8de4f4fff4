// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "experiments/plan_print.h"
#include "tests/support/golden.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

PlanInputs test_inputs() {
  return {.model_hash = "0123456789abcdef0123456789abcdef",
          .model_name = "synthetic:llama-tiny",
          .model_origin = "synthetic:llama-tiny",
          .model_is_fallback = false,
          .prompt_pool_hash = "fedcba9876543210fedcba9876543210",
          .binary_hash = "00112233445566778899aabbccddeeff"};
}

StackSpec stack(std::string name, RuntimeFeatures runtime, WeightScheme weights) {
  StackSpec spec;
  spec.name = std::move(name);
  spec.runtime = runtime;
  spec.weights = weights;
  return spec;
}

/// The four cells of the quickstart at one workload point.
ExperimentSpec test_spec() {
  const RuntimeFeatures eager = RuntimeFeatures::eager();
  const RuntimeFeatures fast = RuntimeFeatures::fast(DeviceKind::kCpu);
  ExperimentSpec spec;
  spec.experiment = "test";
  spec.path = "spec.yaml";
  spec.stacks = {stack("baseline", eager, WeightScheme::kF16),
                 stack("intermediate", fast, WeightScheme::kF16),
                 stack("full", fast, WeightScheme::kW4A16G32),
                 stack("corner", eager, WeightScheme::kW4A16G32)};
  WorkloadSpec workload;
  workload.prompt_tokens = 32;
  workload.output_tokens = 16;
  workload.requests = 1;
  spec.workloads = {workload};
  DecomposeSpec decompose;
  decompose.name = "builtin";
  decompose.path = {"baseline", "intermediate", "full"};
  decompose.corner = "corner";
  decompose.place = {9, 3, {}};
  spec.decompositions = {decompose};
  return spec;
}

RunPlan plan_of(const ExperimentSpec& spec, const PlanInputs& inputs = test_inputs()) {
  auto plan = make_plan(spec, inputs);
  TRIPTYCH_CHECK(plan.has_value(), plan.error().to_string());
  return std::move(*plan);
}

std::string error_of(const ExperimentSpec& spec) {
  const auto plan = make_plan(spec, test_inputs());
  return plan.has_value() ? "accepted" : plan.error().to_string();
}

std::vector<std::string> hashes(const RunPlan& plan) {
  std::vector<std::string> all;
  for (const Comparison& comparison : plan.comparisons) {
    for (const PlannedCell& cell : comparison.cells) all.push_back(cell.hash);
  }
  return all;
}

TEST(Plan, CellsAreEveryStackAtEveryWorkload) {
  ExperimentSpec spec = test_spec();
  spec.workloads.push_back(spec.workloads[0]);
  spec.workloads[1].concurrency = spec.workloads[1].requests = 8;
  const RunPlan plan = plan_of(spec);
  ASSERT_EQ(plan.comparisons.size(), 2u);
  EXPECT_EQ(plan.comparisons[1].label, "c=8,prompt=32,output=16");
  ASSERT_EQ(plan.comparisons[1].cells.size(), 4u);
  EXPECT_EQ(plan.comparisons[1].cells[2].name, "full@c=8,prompt=32,output=16");
  EXPECT_EQ(plan.comparisons[1].cells[2].stack, 2u);
  const auto all = hashes(plan);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 8u);
}

TEST(Plan, EveryBlockIsAPermutation) {
  ExperimentSpec spec = test_spec();
  spec.measure.blocks = 200;
  const RunPlan plan = plan_of(spec);
  std::set<std::vector<size_t>> seen;
  std::vector<size_t> first_place(4, 0);
  for (const auto& block : plan.comparisons[0].order) {
    std::vector<size_t> sorted = block;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, (std::vector<size_t>{0, 1, 2, 3}));
    seen.insert(block);
    ++first_place[block[0]];
  }
  EXPECT_EQ(seen.size(), 24u) << "200 draws of 24 permutations miss one with probability < 0.5 %; "
                                 "the seed is fixed";
  for (const size_t count : first_place) {
    EXPECT_NEAR(static_cast<double>(count), 50.0, 25.0);  // 4 standard deviations of B(200, 1/4)
  }
}

TEST(Plan, OrderDependsOnSeedAndBlockOnly) {
  ExperimentSpec spec = test_spec();
  spec.measure.blocks = 20;
  const RunPlan longer = plan_of(spec);
  spec.measure.blocks = 5;
  const RunPlan shorter = plan_of(spec);
  for (size_t b = 0; b < 5; ++b) {
    EXPECT_EQ(shorter.comparisons[0].order[b], longer.comparisons[0].order[b]);
  }
  EXPECT_EQ(hashes(shorter), hashes(longer)) << "cells do not depend on the number of blocks";
  EXPECT_NE(shorter.hash, longer.hash);
  spec.measure.blocks = 20;
  spec.measure.seed = 2;
  const RunPlan reseeded = plan_of(spec);
  EXPECT_NE(reseeded.comparisons[0].order, longer.comparisons[0].order);
  EXPECT_NE(reseeded.hash, longer.hash);
}

TEST(Plan, SequentialOrderIsThatOfTheSpec) {
  ExperimentSpec spec = test_spec();
  spec.measure.interleaved = false;
  const RunPlan plan = plan_of(spec);
  for (const auto& block : plan.comparisons[0].order) {
    EXPECT_EQ(block, (std::vector<size_t>{0, 1, 2, 3}));
  }
}

TEST(PlanHash, EveryAxisWorkloadFieldAndInputChangesIt) {
  const auto base = hashes(plan_of(test_spec()))[0];
  std::set<std::string> seen = {base};
  const auto expect_new = [&](const std::string& what, auto change) {
    ExperimentSpec spec = test_spec();
    PlanInputs inputs = test_inputs();
    spec.decompositions.clear();
    change(spec.stacks[0], spec.workloads[0], inputs);
    EXPECT_TRUE(seen.insert(hashes(plan_of(spec, inputs))[0]).second) << what;
  };
  using S = StackSpec&;
  using W = WorkloadSpec&;
  using I = PlanInputs&;
  expect_new("runtime", [](S s, W, I) { s.runtime.set(RuntimeFeature::kFused); });
  expect_new("weights", [](S s, W, I) { s.weights = WeightScheme::kW4A16G64; });
  expect_new("kv", [](S s, W, I) { s.kv = KvFormat::kF32; });
  expect_new("threads", [](S s, W, I) { s.num_threads = 3; });
  expect_new("tensor_parallel", [](S s, W, I) { s.tensor_parallel = 2; });
  expect_new("all_reduce", [](S s, W, I) {
    s.tensor_parallel = 2;
    s.all_reduce = AllReduceKind::kStub;
  });
  expect_new("engine", [](S s, W, I) { s.engine = "command"; });
  expect_new("command", [](S s, W, I) {
    s.engine = "command";
    s.command.argv = {"x"};
  });
  expect_new("options", [](S s, W, I) {
    s.engine = "command";
    s.command.options = R"({"a":1})";
  });
  expect_new("program", [](S, W, I i) { i.command_hashes["baseline"] = "0"; });
  expect_new("prompt_tokens", [](S, W w, I) { ++w.prompt_tokens; });
  expect_new("output_tokens", [](S, W w, I) { ++w.output_tokens; });
  expect_new("concurrency", [](S, W w, I) { ++w.concurrency; });
  expect_new("requests", [](S, W w, I) { ++w.requests; });
  expect_new("sampling", [](S, W w, I) { w.sampling.temperature = 1.0f; });
  expect_new("ignore_eos", [](S, W w, I) { w.ignore_eos = false; });
  expect_new("model", [](S, W, I i) { i.model_hash = "1"; });
  expect_new("prompts", [](S, W, I i) { i.prompt_pool_hash = "1"; });
  expect_new("program", [](S, W, I i) { i.binary_hash = "1"; });
}

TEST(PlanHash, NamesAndMeasureDoNotChangeCells) {
  ExperimentSpec spec = test_spec();
  spec.decompositions.clear();
  spec.stacks[0].name = "other";
  spec.stacks[0].place = {77, 1, {}};
  spec.measure.blocks = 3;
  spec.question = "?";
  EXPECT_EQ(hashes(plan_of(spec)), hashes(plan_of(test_spec())));
}

TEST(PlanHash, StacksThatAreAlikeAreTwoCells) {
  ExperimentSpec spec = test_spec();
  spec.decompositions.clear();
  spec.stacks.push_back(spec.stacks[0]);
  spec.stacks.back().name = "again";
  const auto all = hashes(plan_of(spec));
  EXPECT_NE(all.front(), all.back());
  EXPECT_EQ(all.front(), hashes(plan_of(test_spec())).front()) << "the first keeps its hash";
}

TEST(PlanHash, DecompositionIsPartOfThePlan) {
  ExperimentSpec spec = test_spec();
  const std::string before = plan_of(spec).hash;
  spec.decompositions[0].corner.reset();
  EXPECT_NE(plan_of(spec).hash, before);
}

TEST(PlanRules, ARungMayChangeNothing) {
  ExperimentSpec spec = test_spec();
  spec.stacks.push_back(spec.stacks[0]);
  spec.stacks.back().name = "again";
  spec.decompositions[0].path = {"baseline", "again"};
  spec.decompositions[0].corner.reset();
  EXPECT_EQ(error_of(spec), "accepted");
  EXPECT_EQ(factor_name(spec.stacks.front(), spec.stacks.back()), "identical");
}

TEST(PlanRules, ARungChangesOneAxis) {
  ExperimentSpec spec = test_spec();
  spec.decompositions[0].path = {"baseline", "full"};
  spec.decompositions[0].corner.reset();
  EXPECT_EQ(error_of(spec),
            "spec.yaml:9:3: decompose.builtin: from \"baseline\" to \"full\" changes runtime and "
            "weights at once, so its factor is neither; put a stack between them, or say why with "
            "\"confounded: why\"");
  spec.decompositions[0].confounded = "the total is all that is asked for";
  EXPECT_EQ(error_of(spec), "accepted");
}

TEST(PlanRules, AnotherEngineMayChangeEverything) {
  ExperimentSpec spec = test_spec();
  spec.stacks[0].engine = "command";
  spec.decompositions[0].corner.reset();
  EXPECT_EQ(error_of(spec), "accepted");
}

TEST(PlanRules, AnotherEngineStandsAtTheStartAndChangesNothingElse) {
  ExperimentSpec spec = test_spec();
  spec.decompositions[0].corner.reset();
  spec.stacks[0].engine = "command";
  spec.stacks[0].command.adapter = "hf_transformers";
  spec.stacks[0].num_threads = 4;  // its threads are not those of the built-in engine
  EXPECT_EQ(error_of(spec), "accepted");
  EXPECT_EQ(factor_name(spec.stacks[0], spec.stacks[1]), "engine");

  spec.stacks[0].weights = WeightScheme::kBF16;
  EXPECT_THAT(error_of(spec), HasSubstr("from \"baseline\" to \"intermediate\" changes engine and "
                                        "weights at once"));
  spec.stacks[0].weights = WeightScheme::kF16;
  spec.decompositions[0].path = {"intermediate", "baseline"};
  EXPECT_THAT(error_of(spec), HasSubstr("\"baseline\" is an engine of its own behind the built-in "
                                        "\"intermediate\""));
  spec.decompositions[0].confounded = "to see how far it is";
  EXPECT_EQ(error_of(spec), "accepted");
}

TEST(PlanRules, TwoModesOfAnotherEngineAreARuntimeApart) {
  ExperimentSpec spec = test_spec();
  for (const size_t i : {0U, 1U}) {
    spec.stacks[i].engine = "command";
    spec.stacks[i].runtime = RuntimeFeatures::eager();
    spec.stacks[i].command.adapter = "hf_transformers";
  }
  spec.stacks[1].command.options = R"({"mode":"static_compile"})";
  spec.decompositions[0].path = {"baseline", "intermediate"};
  spec.decompositions[0].corner.reset();
  EXPECT_EQ(error_of(spec), "accepted");
  EXPECT_EQ(factor_name(spec.stacks[0], spec.stacks[1]), "runtime");
}

TEST(PlanRules, TheCornerSharesTheBaselinesRuntimeAndTheFullsWeights) {
  ExperimentSpec spec = test_spec();
  EXPECT_EQ(error_of(spec), "accepted");
  spec.stacks[3].runtime.set(RuntimeFeature::kArena);
  EXPECT_THAT(error_of(spec), HasSubstr("the corner \"corner\" is not the fourth cell: its runtime "
                                        "is arena, but baseline has eager"));
  spec = test_spec();
  spec.stacks[3].weights = WeightScheme::kW4A16G64;
  EXPECT_THAT(error_of(spec), HasSubstr("its weights is w4a16-g64, but full has w4a16-g32"));
  spec.stacks[3].num_threads = 1;
  EXPECT_THAT(error_of(spec), HasSubstr("its threads is 1, but baseline has 0"));
  spec.decompositions[0].confounded = "only g64 is there";
  EXPECT_EQ(error_of(spec), "accepted");
}

TEST(PlanRules, TwoRungsOfOneAxisHaveNoFourthCell) {
  ExperimentSpec spec = test_spec();
  spec.stacks[0].runtime.set(RuntimeFeature::kFused);
  spec.stacks[2] = spec.stacks[1];
  spec.stacks[2].name = "full";
  spec.stacks[2].runtime = RuntimeFeatures::eager();
  EXPECT_THAT(error_of(spec), HasSubstr("both rungs change runtime, so there is no fourth cell"));
}

TEST(PlanRules, ImpossiblyLongRunsAreRefused) {
  ExperimentSpec spec = test_spec();
  spec.measure.blocks = 100'000;
  spec.workloads.assign(100, spec.workloads[0]);
  EXPECT_THAT(error_of(spec), HasSubstr("400 cells in 100000 blocks"));
}

TEST(FactorName, SaysWhichAxesChange) {
  const ExperimentSpec spec = test_spec();
  EXPECT_EQ(factor_name(spec.stacks[0], spec.stacks[1]), "runtime");
  EXPECT_EQ(factor_name(spec.stacks[1], spec.stacks[2]), "kernel_quantization");
  EXPECT_EQ(factor_name(spec.stacks[0], spec.stacks[2]), "runtime+kernel_quantization");
  StackSpec arena = spec.stacks[0];
  arena.runtime.set(RuntimeFeature::kArena);
  EXPECT_EQ(factor_name(spec.stacks[0], arena), "arena");
  EXPECT_EQ(factor_name(arena, spec.stacks[0]), "runtime") << "less is not a feature";
  StackSpec two = arena;
  two.runtime.set(RuntimeFeature::kFused);
  EXPECT_EQ(factor_name(spec.stacks[0], two), "runtime");
  EXPECT_EQ(factor_name(arena, two), "fused");
  EXPECT_EQ(factor_name(spec.stacks[0], spec.stacks[0]), "identical");
  StackSpec kv = spec.stacks[0];
  kv.kv = KvFormat::kF32;
  EXPECT_EQ(factor_name(spec.stacks[0], kv), "kv");
  StackSpec ranks = spec.stacks[0];
  ranks.tensor_parallel = 2;
  EXPECT_EQ(factor_name(spec.stacks[0], ranks), "parallel");
}

/// From a spec on disk to the text of `triptych plan`, with inputs that do not depend on the build.
TEST(PlanGolden, SpecToPlan) {
  for (const std::string name : {"two_by_two", "matrix"}) {
    SCOPED_TRACE(name);
    const auto spec = parse_spec(golden_dir() / "plan" / (name + ".yaml"), {});
    ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
    ExperimentSpec portable = *spec;
    for (WorkloadSpec& workload : portable.workloads) workload.prompts = "pool.jsonl";
    const RunPlan plan = plan_of(portable);
    ModelShapes shapes(*open_synthetic({.synthetic = "llama-tiny"}));
    const auto estimate = estimate_plan(portable, shapes, 1e12);
    ASSERT_TRUE(estimate.has_value());
    StoredResults stored;
    stored.done[plan.comparisons[0].cells[1].hash] = 12;
    if (name == "matrix") stored.read_bytes_per_s = 31.4e9;
    const std::string fallback = name == "matrix" ? "model.gguf is missing: its fallback runs" : "";
    expect_golden("plan/" + name + ".txt",
                  print_plan({portable, test_inputs(), plan, fallback, *estimate,
                              name == "matrix" ? 1000 : int64_t{8} << 30, stored}));
  }
}

/// The time of a CUDA plan comes from that device's bandwidth, whatever the CPU's was.
TEST(PlanPrint, CudaTimeNeedsTheDevice) {
  auto spec = parse_spec(golden_dir() / "plan" / "two_by_two.yaml", {});
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  spec->device = DeviceKind::kCuda;
  const RunPlan plan = plan_of(*spec);
  PlanEstimate estimate;
  estimate.moved_bytes = 4e12;
  StoredResults stored;
  stored.read_bytes_per_s = 20e9;  // of a run on the CPU
  const PlanView elsewhere{*spec, test_inputs(), plan, "", estimate, std::nullopt, stored};
  const std::string without = print_plan(elsewhere);
  EXPECT_THAT(without, HasSubstr("time    no estimate without the CUDA device"));
  EXPECT_EQ(without.find("at least"), std::string::npos);
  const PlanView here{*spec, test_inputs(), plan, "", estimate, std::nullopt, stored, 4e12};
  EXPECT_THAT(print_plan(here), HasSubstr("time    at least 1.00 s: the passes must read 3730 GiB "
                                          "at 4000 GB/s (measured now)"));
}

}  // namespace
}  // namespace triptych
