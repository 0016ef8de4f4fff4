// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path bad_specs() { return golden_dir() / "spec_errors"; }

/// A spec beside the pool of the golden folder, so that its files exist.
Result<ExperimentSpec> parse(std::string_view yaml, std::vector<SpecOverride> overrides = {}) {
  return parse_spec_text(yaml, bad_specs() / "test.yaml", overrides);
}

constexpr std::string_view kHead = R"(experiment: test
model: {synthetic: llama-tiny, seed: 7, layers: 1}
)";
constexpr std::string_view kStacks = R"(stacks:
  baseline: {runtime: eager, weights: f16}
  intermediate: {runtime: fast, weights: f16}
  full: {runtime: [fused, arena], weights: w4a16-g32, kv: f32, threads: 2}
)";
constexpr std::string_view kWorkload =
    "workload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 4}\n";

std::string whole(std::string_view workload = kWorkload, std::string_view rest = "") {
  return std::string(kHead) + std::string(kStacks) + std::string(workload) + std::string(rest);
}

std::vector<std::string> labels(const ExperimentSpec& spec) {
  std::vector<std::string> all;
  for (const WorkloadSpec& workload : spec.workloads) all.push_back(workload.label());
  return all;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST(Spec, WhatIsThereButNoReadableFileIsNotCalledMissing) {
  const TempDir folder;
  fs::create_directory(folder / "folder");
  fs::create_symlink("loop", folder / "loop");  // opening fails for every user, root too
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  static_cast<void>(folder.write("pool.jsonl", ""));
  const auto error_of = [&](const std::string& yaml) {
    const auto spec = parse_spec_text(yaml, folder / "test.yaml", {});
    return spec ? Error{ErrorCode::kInvalidArgument, "accepted", ""} : spec.error();
  };
  const std::vector<std::pair<std::string, std::string>> workloads = {
      {"workload: {prompts: PATH, prompt_tokens: 8, output_tokens: 4}\n", "workload.prompts"},
      {"workload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 4, requests: 2, arrivals: "
       "{trace: PATH}}\n",
       "workload.arrivals.trace"}};
  for (const auto& [workload, key] : workloads) {
    const Error directory = error_of(whole(replaced(workload, "PATH", "folder")));
    EXPECT_THAT(
        directory.message,
        HasSubstr(key + ": this is a folder, expected a file: " + (folder / "folder").string()));
    const Error loop = error_of(whole(replaced(workload, "PATH", "loop")));
    EXPECT_EQ(loop.code, ErrorCode::kIo);
    EXPECT_THAT(loop.message, HasSubstr(key + ": cannot be opened (Too many levels of symbolic"));
    EXPECT_THAT(error_of(whole(replaced(workload, "PATH", "pipe"))).message,
                HasSubstr(key + ": this is no regular file: "));
    EXPECT_EQ(error_of(whole(replaced(workload, "PATH", "nothing"))).code, ErrorCode::kNotFound);
  }
  const std::string rest = std::string(kStacks) + std::string(kWorkload);
  for (const char* fallback : {"", "model_fallback: {synthetic: llama-tiny}\n"}) {
    const std::string head = "experiment: test\n" + std::string(fallback);
    const Error loop = error_of(head + "model: loop\n" + rest);
    EXPECT_EQ(loop.code, ErrorCode::kIo);
    EXPECT_THAT(loop.message, HasSubstr("model: cannot be opened (Too many levels of symbolic"));
    EXPECT_THAT(error_of(head + "model: pipe\n" + rest).message,
                HasSubstr("model: this is no regular file: "));
    EXPECT_EQ(error_of(head + "model: folder\n" + rest).message, "accepted");
  }
}

TEST(Spec, MemoryLimitsHaveUnits) {
  const auto limit = [](const std::string& text) {
    const auto spec =
        parse(replaced(whole(), "runtime: eager,", "runtime: eager, memory_limit: " + text + ","));
    return spec ? spec->stacks[0].memory_limit : -1;
  };
  EXPECT_EQ(limit("0.5"), 0.5);
  EXPECT_EQ(limit("100kB"), 1e5);
  EXPECT_EQ(limit("200KiB"), 200 * 1024.0);
  EXPECT_EQ(limit("3MB"), 3e6);
  EXPECT_EQ(limit("3MiB"), 3 * 0x1p20);
  EXPECT_EQ(limit("1.5GB"), 1.5e9);
  EXPECT_EQ(limit("24 GiB"), 24 * 0x1p30);
  EXPECT_EQ(limit("2TB"), 2e12);
  EXPECT_EQ(limit("2TiB"), 2 * 0x1p40);
  EXPECT_EQ(limit("1000TB"), 1e15);
  EXPECT_EQ(limit("2e9"), 2e9);
  for (const char* text : {"99kB", "1001TB", "24G", "24Gib", "1PB", "24B"}) {
    EXPECT_EQ(limit(text), -1) << text;
  }
}

TEST(Spec, ArrivalsAreWorkloadPointsOfTheirOwn) {
  const auto spec = parse(whole(
      "workload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 4, concurrency: [1, 2],\n"
      "  requests: 6, slo: {ttft_ms: 0.5, e2e_ms: 100},\n"
      "  arrivals: [closed, {poisson: 2.5}, {trace: pool.jsonl, speed: 2, lengths: true}]}\n"));
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(labels(*spec),
            (std::vector<std::string>{
                "c=1,prompt=8,output=4,requests=6", "c=2,prompt=8,output=4,requests=6",
                "c=1,prompt=8,output=4,requests=6,arrivals=poisson:2.5",
                "c=2,prompt=8,output=4,requests=6,arrivals=poisson:2.5",
                "c=1,prompt=8,output=4,requests=6,arrivals=trace:pool.jsonl,speed=2,lengths",
                "c=2,prompt=8,output=4,requests=6,arrivals=trace:pool.jsonl,speed=2,lengths"}));
  const WorkloadSpec& last = spec->workloads.back();
  EXPECT_EQ(last.arrivals.kind, ArrivalSpec::Kind::kTrace);
  EXPECT_EQ(last.arrivals.trace, bad_specs() / "pool.jsonl");
  EXPECT_EQ(last.slo.ttft_ms, 0.5);
  EXPECT_EQ(last.slo.tpot_ms, std::nullopt);
  EXPECT_EQ(last.slo.e2e_ms, 100.0);
}

TEST(Spec, FewerRequestsThanSlotsAreFineInAnOpenLoop) {
  EXPECT_TRUE(
      parse(whole("workload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 4,\n"
                  "  concurrency: 8, requests: 3, arrivals: {poisson: 1}}\n")));
}

TEST(Spec, ReadsEveryField) {
  const auto spec = parse(
      whole("workload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 4, concurrency: 2,\n"
            "  requests: 6, sampling: greedy, ignore_eos: false}\n",
            "question: why?\n"
            "measure: {blocks: 5, warmup: 0, order: sequential, trace_steps: 0, seed: 9}\n"
            "decompose:\n  d: {path: [baseline, full], confounded: two at once}\n"));
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(spec->experiment, "test");
  EXPECT_EQ(spec->question, "why?");
  EXPECT_EQ(spec->model.synthetic, "llama-tiny");
  EXPECT_EQ(spec->model.seed, 7u);
  EXPECT_EQ(spec->model.layers, 1);
  ASSERT_EQ(spec->stacks.size(), 3u);
  EXPECT_EQ(spec->stacks[1].runtime, RuntimeFeatures::fast(DeviceKind::kCpu));
  const StackSpec& full = spec->stacks[2];
  EXPECT_EQ(full.name, "full");
  EXPECT_EQ(full.runtime.to_string(), "fused+arena");
  EXPECT_EQ(full.weights, WeightScheme::kW4A16G32);
  EXPECT_EQ(full.kv, KvFormat::kF32);
  EXPECT_EQ(full.num_threads, 2);
  EXPECT_EQ(full.place.line, 6);
  EXPECT_EQ(full.place.column, 3);
  ASSERT_EQ(spec->workloads.size(), 1u);
  const WorkloadSpec& workload = spec->workloads[0];
  EXPECT_EQ(workload.prompts, bad_specs() / "pool.jsonl");
  EXPECT_EQ(workload.label(), "c=2,prompt=8,output=4,requests=6");
  EXPECT_FALSE(workload.ignore_eos);
  EXPECT_EQ(spec->measure.blocks, 5);
  EXPECT_EQ(spec->measure.warmup, 0);
  EXPECT_FALSE(spec->measure.interleaved);
  EXPECT_EQ(spec->measure.trace_steps, 0);
  EXPECT_EQ(spec->measure.seed, 9u);
  ASSERT_EQ(spec->decompositions.size(), 1u);
  EXPECT_EQ(spec->decompositions[0].confounded, "two at once");
  EXPECT_FALSE(spec->decompositions[0].corner.has_value());
}

TEST(Spec, ReadsSampling) {
  const auto sampling = [](const std::string& text) {
    const auto spec = parse(whole(
        "workload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 4, sampling: " + text +
        "}\n"));
    return spec.has_value() ? to_string(spec->workloads[0].sampling) : spec.error().message;
  };
  EXPECT_EQ(sampling("greedy"), "greedy");
  EXPECT_EQ(sampling("{temperature: 0.8, top_k: 40, top_p: 0.95, seed: 1}"),
            "temperature=0.8,top_k=40,top_p=0.95,seed=1");
  EXPECT_EQ(sampling("{temperature: 0.001}"), "temperature=0.001,top_k=0,top_p=1,seed=0");
  for (const auto* text : {"{temperature: 0.001, top_p: 0.000001}", "{temperature: 1000}"}) {
    const auto spec = parse(
        whole("workload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 4, sampling: " +
              std::string(text) + "}\n"));
    ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
    EXPECT_TRUE(check_sampling(spec->workloads[0].sampling).has_value()) << text;
  }
}

TEST(Spec, DefaultsAreThoseOfTheStructs) {
  const auto spec = parse(whole());
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(spec->workloads[0].concurrency, 1);
  EXPECT_EQ(spec->workloads[0].requests, 1);
  EXPECT_TRUE(spec->workloads[0].ignore_eos);
  EXPECT_EQ(to_string(spec->workloads[0].sampling), "greedy");
  EXPECT_EQ(spec->measure.blocks, MeasureSpec{}.blocks);
  EXPECT_TRUE(spec->measure.interleaved);
  EXPECT_TRUE(spec->decompositions.empty());
}

TEST(Spec, ListsAreCrossedTheLastFieldFastest) {
  const auto spec =
      parse(whole("workload: {prompts: pool.jsonl, prompt_tokens: [8, 16], output_tokens: 4, "
                  "concurrency: [1, 2]}\n"));
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(labels(*spec),
            (std::vector<std::string>{"c=1,prompt=8,output=4", "c=2,prompt=8,output=4",
                                      "c=1,prompt=16,output=4", "c=2,prompt=16,output=4"}));
  EXPECT_EQ(spec->workloads[1].requests, 2) << "requests follow the concurrency of their point";
}

TEST(Spec, ZipWalksInStepAndExcludeDropsPoints) {
  const auto spec =
      parse(whole("workload: {prompts: pool.jsonl, prompt_tokens: [8, 16, 32], "
                  "output_tokens: [4, 5, 6], concurrency: [1, 8]}\n",
                  "zip: [[prompt_tokens, output_tokens]]\n"
                  "exclude: [{concurrency: 8, prompt_tokens: [16, 32]}]\n"));
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(labels(*spec),
            (std::vector<std::string>{"c=1,prompt=8,output=4", "c=8,prompt=8,output=4",
                                      "c=1,prompt=16,output=5", "c=1,prompt=32,output=6"}));
}

TEST(Spec, ListsInAStackMakeOneStackPerValue) {
  const auto spec = parse(
      std::string(kHead) +
      "stacks:\n"
      "  full: {runtime: fast, weights: [w4a16-g32, w4a16-g64], threads: [1, 2]}\n" +
      std::string(kWorkload) + "decompose:\n  d: {path: [full-w4a16-g32-t1, full-w4a16-g64-t1]}\n");
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  std::vector<std::string> names;
  for (const StackSpec& stack : spec->stacks) names.push_back(stack.name);
  EXPECT_EQ(names, (std::vector<std::string>{"full-w4a16-g32-t1", "full-w4a16-g32-t2",
                                             "full-w4a16-g64-t1", "full-w4a16-g64-t2"}));
}

TEST(Spec, ParallelIsAnAxisOfAStack) {
  const auto spec =
      parse(std::string(kHead) +
            "stacks:\n"
            "  a: {runtime: fast, weights: f16}\n"
            "  b: {runtime: fast, weights: f16, parallel: {tp: 2}}\n"
            "  c: {runtime: fast, weights: f16, parallel: {allreduce: stub, tp: 4}}\n" +
            std::string(kWorkload));
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(spec->stacks[0].parallel(), "tp=1,instances=1");
  EXPECT_EQ(spec->stacks[1].parallel(), "tp=2,instances=1,allreduce=auto");
  EXPECT_EQ(spec->stacks[2].parallel(), "tp=4,instances=1,allreduce=stub");
  EXPECT_EQ(spec->stacks[2].tensor_parallel, 4);
  EXPECT_EQ(spec->stacks[2].all_reduce, AllReduceKind::kStub);
}

TEST(Spec, AnAllReduceNeedsRanks) {
  for (const char* parallel : {"{allreduce: stub}", "{tp: 1, allreduce: oneshot}", "{tp: 65}"}) {
    const auto spec = parse(std::string(kHead) +
                            "stacks:\n  a: {runtime: fast, weights: f16, parallel: " + parallel +
                            "}\n" + std::string(kWorkload));
    EXPECT_FALSE(spec.has_value()) << parallel;
  }
}

TEST(Spec, AnchorsAreExpanded) {
  const auto spec = parse(std::string(kHead) +
                          "stacks:\n  a: &same {runtime: eager, weights: f16}\n  b: *same\n" +
                          std::string(kWorkload));
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(spec->stacks[1].name, "b");
  EXPECT_EQ(spec->stacks[1].runtime.to_string(), "eager");
}

TEST(Spec, MissingModelIsAcceptedWithAFallback) {
  std::string text = whole();
  text = replaced(text, "{synthetic: llama-tiny, seed: 7, layers: 1}",
                  "nowhere.gguf\nmodel_fallback: {synthetic: llama-tiny}");
  const auto spec = parse(text);
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(spec->model.path, bad_specs() / "nowhere.gguf");
  ASSERT_TRUE(spec->model_fallback.has_value());
  EXPECT_EQ(spec->model_fallback->synthetic, "llama-tiny");
}

TEST(Spec, MissingFileIsNotFound) {
  const auto spec = parse_spec("no/such/spec.yaml", {});
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error().code, ErrorCode::kNotFound);
}

TEST(SpecText, CommentsLayoutQuotesAndKeyOrderLeaveNoTrace) {
  const auto a = parse(whole());
  const auto b = parse(R"(# a comment
"experiment": 'test'
workload:
    output_tokens: 4   # fewer
    prompt_tokens: 8
    prompts: "pool.jsonl"
stacks:
  baseline:
    weights: "f16"
    runtime: eager
  intermediate: {weights: f16, runtime: fast}
  full: {threads: 2, kv: f32, runtime: [fused, arena], weights: w4a16-g32}
model: {layers: 1, seed: 7, synthetic: llama-tiny}
)");
  ASSERT_TRUE(a.has_value()) << a.error().to_string();
  ASSERT_TRUE(b.has_value()) << b.error().to_string();
  EXPECT_EQ(a->text, b->text);
}

TEST(SpecText, ParsesToTheSameExperiment) {
  const auto first = parse(whole(kWorkload, "question: \"a: \\\"b\\\"\\n# c\"\n"));
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  const auto second = parse(first->text);
  ASSERT_TRUE(second.has_value()) << second.error().to_string() << "\n" << first->text;
  EXPECT_EQ(second->text, first->text);
  EXPECT_EQ(second->question, "a: \"b\"\n# c");
  EXPECT_EQ(second->stacks.size(), first->stacks.size());
}

TEST(SpecText, OrderOfStacksIsKept) {
  const auto spec = parse(std::string(kHead) +
                          "stacks:\n  zebra: {runtime: eager, weights: f16}\n"
                          "  ant: {runtime: fast, weights: f16}\n" +
                          std::string(kWorkload));
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  const auto again = parse(spec->text);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->stacks[0].name, "zebra");
}

TEST(Override, ChangesValuesBeforeTheyAreChecked) {
  const auto spec = parse(whole(), {{"measure.blocks", "3"},
                                    {"stacks.full.weights", "w4a16-g64"},
                                    {"workload.concurrency", "[1, 4]"},
                                    {"measure.blocks", "4"}});
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  EXPECT_EQ(spec->measure.blocks, 4) << "the last one wins, and measure was made";
  EXPECT_EQ(spec->stacks[2].weights, WeightScheme::kW4A16G64);
  EXPECT_EQ(spec->workloads.size(), 2u);
  EXPECT_THAT(spec->text, HasSubstr("blocks: 4"));
}

TEST(Override, EqualsTheEditedFile) {
  const auto set = parse(whole(), {{"workload.output_tokens", "12"}});
  const auto edited = parse(replaced(whole(), "output_tokens: 4", "output_tokens: 12"));
  ASSERT_TRUE(set.has_value() && edited.has_value());
  EXPECT_EQ(set->text, edited->text);
}

TEST(Override, ErrorsNameTheOption) {
  const auto where = [&](const std::string& key, const std::string& value) {
    const auto spec = parse(whole(), {{key, value}});
    return spec.has_value() ? "accepted" : spec.error().to_string();
  };
  EXPECT_EQ(where("measure.blcks", "3"),
            "--set measure.blcks=3: unknown key \"blcks\" in measure; did you mean \"blocks\"?");
  EXPECT_EQ(where("mesure.blocks", "3"),
            "--set mesure.blocks=3: unknown key \"mesure\"; did you mean \"measure\"?");
  EXPECT_EQ(where("stacks.ful.weights", "f16"),
            "--set stacks.ful.weights=f16: no key \"ful\" in stacks; did you mean \"full\"?");
  EXPECT_EQ(where("experiment.name", "x"),
            "--set experiment.name=x: experiment is not a mapping, so it has no key \"name\"");
  EXPECT_EQ(
      where("measure.blocks", "many"),
      "--set measure.blocks=many: measure.blocks: expected an integer from 1 to 100000, found "
      "\"many\"");
  EXPECT_THAT(where("measure.blocks", "[1"),
              HasSubstr("--set measure.blocks=[1: the value: not valid YAML"));
  EXPECT_THAT(where("measure.blocks", ""), HasSubstr("the value is empty"));
}

TEST(Override, ParsesKeyAndValue) {
  const auto parsed = parse_override("workload.prompts=a=b.jsonl");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->first, "workload.prompts");
  EXPECT_EQ(parsed->second, "a=b.jsonl");
  for (const std::string_view bad : {"", "blocks", "=3", ".a=1", "a.=1", "a..b=1"}) {
    EXPECT_FALSE(parse_override(bad).has_value()) << bad;
  }
}

/// Every bad spec of the golden folder: its message, whole and exact.
TEST(SpecErrors, MessagesAreExact) {
  size_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(bad_specs())) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    SCOPED_TRACE(entry.path().filename());
    const auto spec = parse_spec(entry.path(), {});
    ASSERT_FALSE(spec.has_value()) << "a bad spec was accepted";
    const std::string folder = bad_specs().string() + "/";
    fs::path expected = entry.path();
    expect_golden(expected.replace_extension(".txt"),
                  replaced(spec.error().to_string(), folder, "") + "\n");
  }
  EXPECT_GE(count, 60u) << "the golden folder is not where it should be";
}

/// No text, however mangled, may crash the reader or be accepted with a broken tree.
TEST(SpecErrors, MangledSpecsNeverCrash) {
  const std::string good = whole(kWorkload,
                                 "measure: {blocks: 5}\ndecompose:\n  d: {path: [full, "
                                 "baseline], confounded: \"x\"}\n");
  constexpr std::string_view kNasty =
      "{}[]:,-&*!|>'\"%@`#\n\t \\?\0\xff"
      "0a~";
  RandomStream random(20240607);
  size_t accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    const uint64_t edits = 1 + random.below(4);
    for (uint64_t i = 0; i < edits; ++i) {
      const size_t at = random.below(text.size());
      switch (random.below(4)) {
        case 0:
          text.erase(at, 1 + random.below(12));
          break;
        case 1:
          text.insert(at, 1, kNasty[random.below(kNasty.size())]);
          break;
        case 2:
          text[at] = kNasty[random.below(kNasty.size())];
          break;
        default:
          text.insert(at, text.substr(random.below(text.size()), random.below(30)));
      }
    }
    const auto spec = parse(text);
    if (!spec) {
      EXPECT_FALSE(spec.error().message.empty());
      continue;
    }
    ++accepted;
    const auto again = parse(spec->text);
    ASSERT_TRUE(again.has_value()) << again.error().to_string() << "\n" << text;
    EXPECT_EQ(again->text, spec->text);
  }
  EXPECT_GT(accepted, 0u) << "some edits are harmless; the mangling is too strong to mean anything";
}

/// The specs that ship are valid, whether or not the model file is there.
TEST(Spec, ShippedSpecsAreValid) {
  const fs::path folder = fs::path(TRIPTYCH_SOURCE_DIR) / "experiments" / "specs";
  size_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const auto spec = parse_spec(entry.path(), {});
    EXPECT_TRUE(spec.has_value()) << spec.error().to_string();
  }
  EXPECT_GE(count, 2u);
}

}  // namespace
}  // namespace triptych
