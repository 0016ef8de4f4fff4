// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "experiments/cli_command.h"
#include "tests/experiments/cli_fixture.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/golden.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const cli::Command* command : cli::commands()) names.emplace_back(command->name);
  return names;
}

TEST(CliHelp, IsGolden) {
  expect_golden("cli/help.txt", run({"--help"}).out);
  std::string document =
      "# Command line\n\n"
      "Made from the program's own tables; a test compares this file with `triptych --help`.\n\n"
      "```text\n" +
      help_text("") + "```\n";
  for (const std::string& name : command_names()) {
    const Ended ended = run({name, "--help"});
    EXPECT_EQ(ended.code, kExitOk);
    EXPECT_EQ(ended.out, help_text(name));
    EXPECT_EQ(run({"help", name}).out, ended.out);
    expect_golden("cli/help_" + name + ".txt", ended.out);
    document += "\n## triptych " + name + "\n\n```text\n" + ended.out + "```\n";
  }
  expect_golden(fs::path(TRIPTYCH_SOURCE_DIR) / "docs" / "cli_help.md", document);
}

TEST(CliHelp, FitsATerminalAndIsAscii) {
  std::vector<std::string> names = command_names();
  names.emplace_back("");
  for (const std::string& name : names) {
    for (const std::string& line : split(help_text(name), '\n')) {
      EXPECT_LE(line.size(), 100u) << line;
      for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
    }
  }
}

TEST(CliHelp, EveryOptionSaysItsMeaningAndDefault) {
  for (const cli::Command* command : cli::commands()) {
    for (const cli::Option& option : command->options) {
      EXPECT_FALSE(option.help.empty()) << command->name << " --" << option.name;
      const bool needs_default = option.name != "cell" && option.name != "set";
      EXPECT_EQ(!option.preset.empty(), needs_default) << command->name << " --" << option.name;
      EXPECT_EQ(option.kind == cli::ValueKind::kSwitch, option.value_name.empty());
    }
  }
}

TEST(CliHelp, NoArgumentsIsAnError) {
  const Ended ended = run({});
  EXPECT_EQ(ended.code, kExitBadInput);
  EXPECT_EQ(ended.err, help_text(""));
  EXPECT_TRUE(ended.out.empty());
}

TEST(CliHelp, Version) {
  EXPECT_THAT(run({"--version"}).out,
              ::testing::ContainsRegex("^triptych [0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(CliArguments, MistakesAreNamedWithTheNearest) {
  const auto error = [](const std::vector<std::string>& args) {
    const Ended ended = run(args);
    EXPECT_EQ(ended.code, kExitBadInput);
    EXPECT_TRUE(ended.out.empty());
    return ended.err;
  };
  EXPECT_EQ(error({"quer"}),
            "triptych: error: unknown command \"quer\"; did you mean \"query\"?\n"
            "Try 'triptych --help'.\n");
  EXPECT_EQ(error({"--versoin"}),
            "triptych: error: unknown option \"--versoin\"; did you mean \"--version\"?\n"
            "Try 'triptych --help'.\n");
  EXPECT_EQ(error({"help", "reprot"}),
            "triptych: error: unknown command \"reprot\"; did you mean \"report\"?\n"
            "Try 'triptych --help'.\n");
  EXPECT_EQ(error({"run", "x.yaml", "--forse"}),
            "triptych: error: unknown option \"--forse\" of 'run'; did you mean \"--force\"?\n"
            "Try 'triptych run --help'.\n");
  EXPECT_THAT(error({"run", "x.yaml", "--forc"}), HasSubstr("did you mean \"--force\"?"))
      << "abbreviations are not guessed";
  EXPECT_EQ(error({"run"}),
            "triptych: error: expected SPEC after 'run'\nTry 'triptych run --help'.\n");
  EXPECT_EQ(error({"run", "a.yaml", "b.yaml"}),
            "triptych: error: unexpected argument \"b.yaml\"\nTry 'triptych run --help'.\n");
  EXPECT_THAT(error({"run", "a.yaml", "--db"}), HasSubstr("'--db'"));
  EXPECT_THAT(error({"run", "a.yaml", "--db", "a", "--db", "b"}), HasSubstr("--db"));
  EXPECT_EQ(error({"report", "--format", "markdwn"}),
            "triptych: error: --format: \"markdwn\" is not known; did you mean \"markdown\"?\n"
            "Try 'triptych report --help'.\n");
  EXPECT_EQ(error({"report", "--run", "-3"}),
            "triptych: error: --run: expected a positive integer, found \"-3\"\n"
            "Try 'triptych report --help'.\n");
  EXPECT_THAT(error({"resume", "--run", "1x"}), HasSubstr("found \"1x\""));
  EXPECT_EQ(error({"plan", "x.yaml", "--set", "blocks"}),
            "triptych: error: --set: expected key.path=value, found \"blocks\"\n");
  EXPECT_EQ(error({"attribute"}), "triptych: error: expected either a trace FILE or --cell NAME\n");
  EXPECT_EQ(error({"attribute", "t.json", "--db", "x"}),
            "triptych: error: --db has no meaning with a trace FILE\n");
  EXPECT_EQ(error({"export"}), "triptych: error: expected --cell NAME\n");
}

TEST(ExitCodes, EveryErrorHasOne) {
  const auto input = [](ErrorCode code) { return exit_code(code, ErrorSubject::kInput); };
  const auto database = [](ErrorCode code) { return exit_code(code, ErrorSubject::kDatabase); };
  EXPECT_EQ(input(ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(input(ErrorCode::kNotFound), 2);
  EXPECT_EQ(input(ErrorCode::kCorrupt), 2);
  EXPECT_EQ(input(ErrorCode::kUnsupported), 4);
  EXPECT_EQ(input(ErrorCode::kIo), 5);
  EXPECT_EQ(input(ErrorCode::kOutOfMemory), 6);
  EXPECT_EQ(database(ErrorCode::kInvalidArgument), 2) << "SQL of the user";
  for (const ErrorCode code : {ErrorCode::kNotFound, ErrorCode::kCorrupt, ErrorCode::kBusy,
                               ErrorCode::kReadOnly, ErrorCode::kSchemaTooNew}) {
    EXPECT_EQ(database(code), 3);
  }
  for (const ErrorCode code : {ErrorCode::kBusy, ErrorCode::kReadOnly, ErrorCode::kSchemaTooNew}) {
    EXPECT_EQ(input(code), 3) << "only a database can be that";
  }
}

TEST_F(CliTest, ABadSpecWritesNothing) {
  const std::string spec = write("bad.yaml", "experimnt: x\n");
  const std::string database = path("never.sqlite");
  for (const std::string command : {"plan", "run"}) {
    const Ended ended = run({command, spec, "--db", database});
    EXPECT_EQ(ended.code, kExitBadInput);
    EXPECT_THAT(ended.err, HasSubstr(spec + ":1:1: unknown key \"experimnt\""));
    EXPECT_THAT(ended.err, StartsWith(spec + ":1:1: ")) << "so that editors make it a link";
    EXPECT_TRUE(ended.out.empty());
  }
  EXPECT_EQ(run({"run", path("no.yaml"), "--db", database}).code, kExitBadInput);
  EXPECT_EQ(run({"run", tiny_spec(), "--db", database, "--set", "measure.blocks=0"}).code,
            kExitBadInput);
  EXPECT_EQ(run({"resume", "--db", database}).code, kExitDatabase);
  EXPECT_FALSE(fs::exists(database));
}

TEST_F(CliTest, UnsupportedIsItsOwnCode) {
  const Ended ended = run({"plan", tiny_spec(), "--set", "stacks.full.linear=marlin_class"});
  EXPECT_EQ(ended.code, kExitUnsupported);
  EXPECT_THAT(ended.err, HasSubstr("not supported in this build"));
}

TEST_F(CliTest, UnwritableOutputIsIo) {
  const Ended ended =
      run({"export", "--db", db(), "--cell", kCell, "--output", path("no/such/folder/t.json")});
  EXPECT_EQ(ended.code, kExitIo);
  const std::string trace = path("full_disk.json");
  ASSERT_EQ(run({"export", "--db", db(), "--cell", kCell, "--output", trace}).code, kExitOk);
  const std::vector<std::vector<std::string>> commands = {
      {"--help"},
      {"--version"},
      {"--bash-completion"},
      {"plan", tiny_spec(), "--db", db()},
      {"report", "--db", db()},
      {"report", "--db", db(), "--format", "json"},
      {"query", "v_runs", "--db", db()},
      {"attribute", trace},
      {"attribute", "--db", db(), "--cell", kCell, "--format", "csv"},
      {"export", "--db", db(), "--cell", kCell},
      {"export", "--db", db(), "--cell", kCell, "--output", "/dev/full"},
      {"doctor"}};
  for (const std::vector<std::string>& command : commands) {
    SCOPED_TRACE(command.front());
    std::ofstream full("/dev/full");
    std::ostringstream err;
    EXPECT_EQ(run_cli(command, {full, err}), kExitIo);
    EXPECT_THAT(err.str(), HasSubstr("be written"));
  }
}

TEST_F(CliTest, FoldersInPlaceOfFilesAreNamed) {
  const std::string folder = path("folder");
  fs::create_directories(folder);
  const std::string trace = (golden_dir() / "attribution/cpu_decode/trace.json").string();
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"plan", folder},
                                             {"run", folder},
                                             {"attribute", folder},
                                             {"attribute", trace, "--rules", folder}}) {
    const Ended ended = run(command);
    EXPECT_EQ(ended.code, kExitBadInput) << command.front();
    EXPECT_EQ(ended.err, "triptych: error: " + folder + ": is a folder, expected a file\n");
  }
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"plan", tiny_spec()},
                                             {"run", tiny_spec()},
                                             {"resume"},
                                             {"report"},
                                             {"query", "v_runs"},
                                             {"attribute", "--cell", "x"},
                                             {"export", "--cell", "x"}}) {
    std::vector<std::string> args = command;
    args.insert(args.end(), {"--db", folder});
    const Ended ended = run(args);
    EXPECT_EQ(ended.code, kExitDatabase) << command.front();
    EXPECT_THAT(ended.err, HasSubstr(folder + ": is a folder, expected a database file"));
  }
}

TEST_F(CliTest, AModelThatLiesIsBadInput) {
  struct Case {
    const char* key;
    uint32_t value;
    const char* message;
  };
  for (const Case& c : std::vector<Case>{{"llama.block_count", 3, "\"blk.2."},
                                         {"llama.block_count", 0xFFFFFFFF, "num_layers is"},
                                         {"llama.embedding_length", 0xFFFFFFF0, "hidden_size is"},
                                         {"llama.embedding_length", 64, "token_embd.weight"},
                                         {"llama.attention.head_count", 0, "head_count"},
                                         {"llama.attention.head_count", 3, "head"},
                                         {"llama.context_length", 0, "max_position is 0"},
                                         {"tokenizer.ggml.bos_token_id", 0xFFFFFFFF, "token id"}}) {
    GgufBuilder builder = tiny_llama_gguf();
    builder.remove(c.key).add(c.key, c.value);
    builder.remove("llama.rope.dimension_count");  // would have to follow from the heads
    const std::string model = write("lies.gguf", builder.build());
    const Ended ended = run({"plan", tiny_spec(), "--set", "model=" + model});
    EXPECT_EQ(ended.code, kExitBadInput) << c.key << "=" << c.value << ": " << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(c.message)) << c.key << "=" << c.value;
  }
}

TEST_F(CliTest, PlanAndASecondRunSayWhatCannotRun) {
  const struct {
    std::string key, value, reason;
  } cases[] = {
      {"workload.prompt_tokens", "1000000", " does not fit: 1000000 prompt + "},
      {"stacks.full.kv_cache_tokens", "16", " does not fit: kv_cache_tokens is 16"},
      {"stacks.full.kv", "f32", " cannot run: the KV cache has 16 bits"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> args = {
        "plan",  tiny_spec(),           "--db",  path("refused_" + c.key + ".sqlite"),
        "--set", c.key + "=" + c.value, "--set", "decompose.builtin.confounded=for the test",
        "--set", "measure.blocks=1",    "--set", "measure.trace_steps=0"};
    const Ended plan = run(args);
    EXPECT_EQ(plan.code, kExitOutOfMemory) << c.key;
    EXPECT_THAT(plan.err, HasSubstr(c.reason));
    EXPECT_THAT(plan.out, HasSubstr("which cannot run"));
    args[0] = "run";
    args.emplace_back("--quiet");
    EXPECT_EQ(run(args).code, kExitPartial) << c.key;
    const Ended second = run(args);
    EXPECT_EQ(second.code, kExitPartial) << c.key;
    EXPECT_THAT(second.err, HasSubstr(" failed or skipped: "));
    args[0] = "plan";
    args.pop_back();
    EXPECT_THAT(run(args).out, HasSubstr("skipped in run 1"));
  }
}

TEST_F(CliTest, APlanThatDoesNotFitSaysTheArithmetic) {
  const std::string database = path("large.sqlite");
  std::vector<std::string> args = {"plan",  tiny_spec(),
                                   "--db",  database,
                                   "--set", "model={synthetic: llama-3.1-8b}",
                                   "--set", "workload.prompt_tokens=100000",
                                   "--set", "workload.concurrency=4096"};
  const Ended plan = run(args);
  EXPECT_EQ(plan.code, kExitOutOfMemory);
  EXPECT_THAT(plan.err,
              HasSubstr("baseline@c=4096,prompt=100000,output=16 does not fit: weights "));
  EXPECT_THAT(plan.err, HasSubstr(" + KV cache "));
  EXPECT_THAT(plan.err, HasSubstr(" + activations "));
  EXPECT_THAT(plan.err, HasSubstr(" exceed the limit of "));
  EXPECT_THAT(plan.out, HasSubstr("DOES NOT FIT"));

  args[0] = "run";
  args.push_back("--quiet");
  const Ended skipped = run(args);
  EXPECT_EQ(skipped.code, kExitPartial) << skipped.err;
  const Ended reasons = run({"query", "SELECT DISTINCT status || ': ' || reason FROM cell",
                             "--format", "csv", "--db", database});
  const size_t weights = plan.err.find("weights ");
  const std::string reason = plan.err.substr(weights, plan.err.find('\n', weights) - weights);
  EXPECT_THAT(reasons.out, HasSubstr("skipped: " + reason));
}

TEST_F(CliTest, CellsThatDoNotFitEndInOne) {
  const std::string database = path("long.sqlite");
  const Ended ended = run({"run", tiny_spec(), "--db", database, "--quiet", "--set",
                           "workload.prompt_tokens=1000000", "--set", "measure.blocks=1"});
  EXPECT_EQ(ended.code, kExitPartial) << ended.out << ended.err;
}

TEST_F(CliTest, PromptsThatTheModelCannotReadWriteNothing) {
  const std::string pool = write("far.jsonl", "{\"token_ids\": [999999999]}\n");
  const std::string database = path("far.sqlite");
  for (const std::string command : {"plan", "run"}) {
    const Ended ended =
        run({command, tiny_spec(), "--db", database, "--set", "workload.prompts=" + pool});
    EXPECT_EQ(ended.code, kExitBadInput) << command;
    EXPECT_THAT(ended.err, HasSubstr("far.jsonl:1: token id 999999999 is outside")) << command;
  }
  EXPECT_FALSE(fs::exists(database));
}

TEST_F(CliTest, PromptsThatAreNoneAreBadInput) {
  const std::string database = path("none.sqlite");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"text\": \"a\"}\n{\"text\": \"\"}\n", "none.jsonl:2: \"text\" is empty"},
      {"{\"token_ids\": []}\n", "none.jsonl:1: \"token_ids\" is not a list of numbers"},
      {"\n\n", "none.jsonl: the prompt pool is empty"}};
  for (const auto& [text, message] : cases) {
    const std::string pool = write("none.jsonl", text);
    const Ended ended =
        run({"run", tiny_spec(), "--db", database, "--set", "workload.prompts=" + pool});
    EXPECT_EQ(ended.code, kExitBadInput) << text;
    EXPECT_THAT(ended.err, HasSubstr(message));
  }
  EXPECT_FALSE(fs::exists(database));
}

TEST_F(CliTest, DoctorAlwaysEndsWell) {
  const Ended ended = run({"doctor"});
  EXPECT_EQ(ended.code, kExitOk);
  EXPECT_THAT(ended.out, HasSubstr("SQLite"));
}

std::string complete(const std::string& script, const std::string& words, int index) {
  const std::string command = "bash -c 'source \"" + script + "\"; COMP_WORDS=(" + words +
                              "); COMP_CWORD=" + std::to_string(index) +
                              "; _triptych; echo \"${COMPREPLY[*]}\"'";
  FILE* pipe = popen(command.c_str(), "r");
  TRIPTYCH_CHECK(pipe != nullptr, "popen");
  std::string text;
  for (int c; (c = fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0);
  return std::string(trim(text));
}

TEST_F(CliTest, BashCompletesCommandsOptionsAndValues) {
  expect_golden("cli/completion.bash", bash_completion());
  EXPECT_EQ(run({"--bash-completion"}).out, bash_completion());
  const std::string script = write("completion.bash", bash_completion());
  EXPECT_EQ(complete(script, "triptych re", 1), "resume report");
  EXPECT_EQ(complete(script, "triptych run --f", 2), "--force");
  EXPECT_EQ(complete(script, "triptych report --format m", 3), "markdown");
  EXPECT_EQ(complete(script, "triptych query --format \"\"", 3), "table csv json");
  EXPECT_EQ(complete(script, "triptych run --db " + path("compl"), 3), script);
  for (const cli::Command* command : cli::commands()) {
    const std::string name(command->name);
    const std::string offered = " " + complete(script, "triptych " + name + " --", 2) + " ";
    for (const cli::Option& option : command->options) {
      EXPECT_THAT(offered, HasSubstr(" --" + std::string(option.name) + " ")) << name;
    }
  }
}

}  // namespace
}  // namespace triptych
