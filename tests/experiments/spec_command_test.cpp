// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Stacks with `engine: command` in a spec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "experiments/spec.h"
#include "tests/support/golden.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

/// A spec with one stack, "a".
Result<ExperimentSpec> parse(const std::string& stack) {
  const std::string yaml =
      "experiment: test\nmodel: {synthetic: llama-tiny}\nstacks:\n  a: {" + stack +
      "}\nworkload: {prompts: pool.jsonl, prompt_tokens: 8, output_tokens: 4}\n";
  return parse_spec_text(yaml, golden_dir() / "spec_errors" / "test.yaml", {});
}

std::string error_of(const std::string& stack) {
  const auto spec = parse(stack);
  return spec ? "accepted" : spec.error().message;
}

TEST(SpecCommand, AnAdapterWithOptions) {
  const auto spec = parse(
      "engine: command, adapter: hf_transformers, weights: bf16, threads: 3, options: {mode: "
      "eager, n: 4, x: 1.5, on: true, text: \"4\", list: [1, a], none: null}, timeout: {start_s: "
      "2, record_s: 0.5, pass_s: 90}");
  ASSERT_TRUE(spec) << spec.error().to_string();
  const StackSpec& stack = spec->stacks.front();
  EXPECT_FALSE(stack.builtin());
  EXPECT_EQ(stack.weights, WeightScheme::kBF16);
  EXPECT_EQ(stack.num_threads, 3);
  EXPECT_EQ(stack.command.options,
            R"({"list":[1,"a"],"mode":"eager","n":4,"none":null,"on":true,"text":"4","x":1.5})");
  EXPECT_EQ(stack.command.timeouts.start_ns, 2'000'000'000);
  EXPECT_EQ(stack.command.timeouts.record_ns, 500'000'000);
  EXPECT_EQ(stack.command.timeouts.pass_ns, 90'000'000'000);
  EXPECT_EQ(stack.command.folder, golden_dir() / "spec_errors");
  EXPECT_EQ(stack.runtime_text(), "hf_transformers " + stack.command.options);
}

TEST(SpecCommand, OptionsAreReadByTheCoreSchemaOfYaml) {
  const std::string head = "engine: command, adapter: hf_transformers, weights: f16, options: ";
  const auto options = [&](const std::string& text) {
    const auto spec = parse(head + text);
    return spec ? spec->stacks.front().command.options : spec.error().to_string();
  };
  EXPECT_EQ(options("{v: [true, True, TRUE, tRue, 'True', yes]}"),
            R"({"v":[true,true,true,"tRue","True","yes"]})");
  EXPECT_EQ(options("{v: [false, False, FALSE, \"False\", no]}"),
            R"({"v":[false,false,false,"False","no"]})");
  EXPECT_EQ(options("{v: [null, Null, NULL, ~, 'null']}"), R"({"v":[null,null,null,null,"null"]})");
  EXPECT_EQ(options("{v: [+5, -5, 007, 0x1F, 0o17, 0x, 1_000, 12:30]}"),
            R"({"v":[5,-5,7,31,15,"0x","1_000","12:30"]})");
  EXPECT_EQ(options("{v: [+1.5, .5, 2., 1e3, -1E-2, inf, nan, e5, ., '1.5']}"),
            R"({"v":[1.5,0.5,2.0,1000.0,-0.01,"inf","nan","e5",".","1.5"]})");
  EXPECT_EQ(options("{v: [9223372036854775807, -9223372036854775808]}"),
            R"({"v":[9223372036854775807,-9223372036854775808]})");
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "0x8000000000000000"}) {
    const std::string error = options("{deep: {seed: " + std::string(text) + "}}");
    EXPECT_THAT(error, HasSubstr("test.yaml:4:"));
    EXPECT_THAT(error, HasSubstr("stacks.a.options.deep.seed: \"" + std::string(text) +
                                 "\" does not fit into 64 bits; quote it if it is text"));
  }
  for (const char* text : {"1e999", ".inf", "-.Inf", ".nan"}) {
    EXPECT_THAT(options("{x: " + std::string(text) + "}"),
                HasSubstr("stacks.a.options.x: \"" + std::string(text) +
                          "\" is no number that JSON can hold"));
  }
  EXPECT_EQ(options("{v: ['9223372036854775808', '.inf']}"),
            R"({"v":["9223372036854775808",".inf"]})");
}

TEST(SpecCommand, OptionsSurviveARewriteOfTheSpec) {
  const auto first = parse(
      "engine: command, adapter: hf_transformers, weights: f16, options: {v: [True, FALSE, Null, "
      "0x1F, 0o17, .5, -.5, +5, 1e3, 'True', '0x1F', '.5', yes]}");
  ASSERT_TRUE(first) << first.error().to_string();
  const std::vector<SpecOverride> overrides = {{"experiment", "other"}};
  const auto rewritten = parse_spec_text(first->text, first->path, overrides);
  ASSERT_TRUE(rewritten) << rewritten.error().to_string();
  const auto stored = parse_spec_text(rewritten->text, first->path, {});
  ASSERT_TRUE(stored) << stored.error().to_string();
  EXPECT_EQ(stored->experiment, "other");
  EXPECT_EQ(stored->stacks.front().command.options,
            R"({"v":[true,false,null,31,15,0.5,-0.5,5,1000.0,"True","0x1F",".5","yes"]})");
  EXPECT_EQ(stored->stacks.front().command.options, first->stacks.front().command.options);
}

TEST(SpecCommand, AProgramOfTheUsers) {
  const auto spec = parse("engine: command, command: [python3, mine.py, --fast], weights: f16");
  ASSERT_TRUE(spec) << spec.error().to_string();
  const StackSpec& stack = spec->stacks.front();
  EXPECT_EQ(stack.command.argv, (std::vector<std::string>{"python3", "mine.py", "--fast"}));
  EXPECT_EQ(stack.command.options, "{}");
  EXPECT_EQ(stack.runtime_text(), "python3 mine.py --fast");
}

TEST(SpecCommand, AnAdapterMayBeAFile) {
  const auto spec = parse("engine: command, adapter: ../mine.py, weights: f32");
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->stacks.front().command.adapter, "../mine.py");
}

TEST(SpecCommand, WeightsMayBeAList) {
  const auto spec = parse("engine: command, adapter: hf_transformers, weights: [f16, bf16]");
  ASSERT_TRUE(spec) << spec.error().to_string();
  ASSERT_EQ(spec->stacks.size(), 2U);
  EXPECT_EQ(spec->stacks[1].name, "a-bf16");
  EXPECT_EQ(spec->stacks[1].command.adapter, "hf_transformers");
}

TEST(SpecCommand, MistakesAreNamed) {
  const std::string hf = "engine: command, adapter: hf_transformers, weights: f16";
  EXPECT_EQ(error_of(hf), "accepted");
  EXPECT_THAT(error_of("engine: command, weights: f16"),
              HasSubstr("stacks.a: expected exactly one of \"adapter\" and \"command\""));
  EXPECT_THAT(error_of(hf + ", command: [x]"), HasSubstr("exactly one of"));
  EXPECT_THAT(error_of("engine: command, adapter: hf_transformer, weights: f16"),
              HasSubstr("\"hf_transformer\" is neither an adapter of this program nor a .py file; "
                        "did you mean \"hf_transformers\"?"));
  EXPECT_THAT(error_of("engine: command, command: run.sh, weights: f16"),
              HasSubstr("expected a list of the program and its arguments"));
  EXPECT_THAT(error_of("engine: command, command: [], weights: f16"),
              HasSubstr("expected a list of the program"));
  EXPECT_THAT(error_of("engine: command, command: [\"\"], weights: f16"),
              HasSubstr("the program has no name"));
  EXPECT_THAT(error_of("engine: command, adapter: hf_transformers, weights: w4a16-g32"),
              HasSubstr("stacks.a.weights: \"w4a16-g32\" is not known"));
  EXPECT_THAT(error_of("engine: command, adapter: hf_transformers"),
              HasSubstr("the key \"weights\" is missing"));
  EXPECT_THAT(error_of(hf + ", options: fast"), HasSubstr("stacks.a.options: expected a mapping"));
  EXPECT_THAT(error_of(hf + ", timeout: {start_s: 0}"),
              HasSubstr("stacks.a.timeout.start_s: expected a number from 0.001"));
  EXPECT_THAT(error_of(hf + ", timeout: {begin_s: 1}"), HasSubstr("unknown key \"begin_s\""));
  for (const std::string key : {"runtime: fast", "kv: f16", "linear: auto", "parallel: {tp: 1}",
                                "kv_cache_tokens: 64", "prefill_chunk: 16"}) {
    EXPECT_THAT(error_of(hf + ", " + key), HasSubstr("is for built-in engines only")) << key;
  }
  for (const std::string key :
       {"adapter: hf_transformers", "command: [x]", "options: {}", "timeout: {}"}) {
    EXPECT_THAT(error_of("runtime: eager, weights: f16, " + key),
                HasSubstr("is for stacks with \"engine: command\" only"))
        << key;
  }
  EXPECT_THAT(error_of("engine: openai, runtime: eager, weights: f16"),
              HasSubstr("not supported in this build; expected builtin or command"));
}

}  // namespace
}  // namespace triptych
