// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "db/connection.h"
#include "db/store.h"
#include "experiments/cli_command.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/golden.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Ended {
  int code = 0;
  std::string out;
  std::string err;
};

Ended run(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_cli(args, {out, err});
  return {code, out.str(), err.str()};
}

std::string tiny_spec() {
  return (fs::path(TRIPTYCH_SOURCE_DIR) / "experiments" / "specs" / "tiny.yaml").string();
}

/// A folder with a database that holds one small run, made once for all tests.
class CliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = (fs::temp_directory_path() / "triptych_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    const Ended ended =
        run({"run", tiny_spec(), "--db", db(), "--quiet", "--set", "measure.blocks=3", "--set",
             "workload.output_tokens=6", "--set", "measure.trace_steps=4"});
    ASSERT_EQ(ended.code, kExitOk) << ended.err;
    ASSERT_THAT(ended.out, HasSubstr("Threats"));
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  static std::string db() { return (folder_ / "results.sqlite").string(); }
  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return path(name);
  }

  static constexpr const char* kCell = "full@c=1,prompt=16,output=6";
  static inline fs::path folder_;
};

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

TEST_F(CliTest, DatabaseErrorsAreTheirOwnCode) {
  const std::string text = write("text.sqlite", std::string(4096, 'x'));
  EXPECT_EQ(run({"report", "--db", path("no.sqlite")}).code, kExitDatabase);
  EXPECT_EQ(run({"query", "v_runs", "--db", path("no.sqlite")}).code, kExitDatabase);
  EXPECT_EQ(run({"export", "--cell", "x", "--db", path("no.sqlite")}).code, kExitDatabase);
  EXPECT_EQ(run({"report", "--db", text}).code, kExitDatabase);
  EXPECT_EQ(run({"run", tiny_spec(), "--db", text, "--quiet"}).code, kExitDatabase);
  EXPECT_EQ(run({"plan", tiny_spec(), "--db", text}).code, kExitDatabase);
  const std::string newer = path("newer.sqlite");
  fs::copy_file(db(), newer);
  {
    auto connection = db::Connection::open(newer, db::OpenMode::kReadWrite);
    ASSERT_TRUE(connection.has_value());
    ASSERT_TRUE(connection->execute("PRAGMA user_version = 1000").has_value());
  }
  const Ended ended = run({"run", tiny_spec(), "--db", newer, "--quiet"});
  EXPECT_EQ(ended.code, kExitDatabase) << ended.err;
  EXPECT_EQ(run({"report", "--db", db(), "--run", "77"}).code, kExitDatabase);
  EXPECT_EQ(run({"report", "nothing", "--db", db()}).code, kExitDatabase);
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

TEST_F(CliTest, ASecondRunDoesNothingAndSaysSo) {
  const std::vector<std::string> again = {"run",
                                          tiny_spec(),
                                          "--db",
                                          db(),
                                          "--quiet",
                                          "--set",
                                          "measure.blocks=3",
                                          "--set",
                                          "workload.output_tokens=6",
                                          "--set",
                                          "measure.trace_steps=4"};
  const Ended ended = run(again);
  EXPECT_EQ(ended.code, kExitOk);
  EXPECT_THAT(ended.err, HasSubstr("nothing to run"));
  EXPECT_THAT(run({"plan", tiny_spec(), "--db", db(), "--set", "measure.blocks=3", "--set",
                   "workload.output_tokens=6", "--set", "measure.trace_steps=4", "--dry-run"})
                  .out,
              HasSubstr("done in run 1"));
}

TEST_F(CliTest, ReportInEveryFormat) {
  for (const std::string format : {"terminal", "markdown", "csv", "json"}) {
    const Ended ended = run({"report", "tiny", "--db", db(), "--format", format});
    EXPECT_EQ(ended.code, kExitOk) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("kernel_quantization"));
    if (format == "json") {
      EXPECT_TRUE(nlohmann::json::accept(ended.out));
    }
  }
  const Ended other = run({"report", "other", "--run", "1", "--db", db()});
  EXPECT_EQ(other.code, kExitBadInput);
  EXPECT_THAT(other.err, HasSubstr("belongs to the experiment \"tiny\""));
}

TEST_F(CliTest, QueryExpandsViewsAndRefusesWriting) {
  const Ended view = run({"query", "v_stack_summary", "--db", db(), "--format", "json"});
  ASSERT_EQ(view.code, kExitOk) << view.err;
  const auto rows = nlohmann::json::parse(view.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["stack"], "baseline");
  EXPECT_TRUE(rows[0]["tpot_ns_median"].is_number());
  const Ended sql = run({"query", "select stack from v_stack_summary order by stack", "--db", db(),
                         "--format", "csv", "--limit", "2"});
  EXPECT_EQ(sql.out, "stack\r\nbaseline\r\ncorner\r\n");
  EXPECT_EQ(sql.err, "triptych: 2 more rows are not shown (--limit)\n");
  EXPECT_THAT(run({"query", "--db", db()}).out, HasSubstr("v_decomposition"));
  const Ended wrong = run({"query", "v_stack_sumary", "--db", db()});
  EXPECT_EQ(wrong.code, kExitBadInput);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean \"v_stack_summary\"?"));
  EXPECT_EQ(run({"query", "select nothing", "--db", db()}).code, kExitBadInput);
  for (const std::string bad : {"delete from run", "drop table run", "pragma user_version = 5"}) {
    EXPECT_NE(run({"query", bad, "--db", db()}).code, kExitOk) << bad;
  }
  EXPECT_EQ(
      nlohmann::json::parse(run({"query", "v_stack_summary", "--db", db(), "--format", "json"}).out)
          .size(),
      4u);
}

TEST_F(CliTest, AStoredTraceAndItsExportAreAttributedAlike) {
  const Ended stored = run({"attribute", "--db", db(), "--cell", kCell});
  ASSERT_EQ(stored.code, kExitOk) << stored.err;
  EXPECT_THAT(stored.out, HasSubstr("residual 0 ns"));
  const std::string file = path("trace.json");
  const Ended exported = run({"export", "--db", db(), "--cell", kCell, "--output", file});
  ASSERT_EQ(exported.code, kExitOk) << exported.err;
  EXPECT_EQ(run({"attribute", file}).out, stored.out);
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_EQ(run({"export", "--db", db(), "--cell", kCell}).out, text.str());

  const Ended csv = run({"attribute", file, "--format", "csv"});
  int64_t sum = 0;
  const std::vector<std::string> lines = split(csv.out, '\n');
  for (size_t i = 1; i + 1 < lines.size(); ++i) sum += std::stoll(split(lines[i], ',')[3]);
  EXPECT_THAT(csv.err, HasSubstr("window " + std::to_string(sum) + " ns"))
      << "the classes sum to the window";

  const std::string rules = write("rules.yaml", "- {class: gemm, kind: kernel}\n");
  const Ended own = run({"attribute", file, "--rules", rules});
  EXPECT_EQ(own.code, kExitOk) << own.err;
  EXPECT_NE(own.out, stored.out);
}

TEST_F(CliTest, CellsAndTracesThatAreNotThere) {
  const Ended wrong = run({"export", "--db", db(), "--cell", "ful@c=1,prompt=16,output=6"});
  EXPECT_EQ(wrong.code, kExitDatabase);
  EXPECT_THAT(wrong.err, HasSubstr(std::string("did you mean \"") + kCell + "\"?"));
  EXPECT_EQ(run({"attribute", path("no.json")}).code, kExitBadInput);
  EXPECT_EQ(run({"attribute", write("bad.json", "{\"traceEvents\": [")}).code, kExitBadInput);
}

TEST_F(CliTest, ExportDoesNotOverwriteItsDatabase) {
  const std::string copy = path("self.sqlite");
  fs::copy_file(db(), copy);
  const auto size = fs::file_size(copy);
  for (const std::string& output : {copy, path("./self.sqlite")}) {
    const Ended ended = run({"export", "--cell", kCell, "--db", copy, "--output", output});
    EXPECT_EQ(ended.code, kExitBadInput);
    EXPECT_THAT(ended.err, HasSubstr("--output names the database itself"));
  }
  EXPECT_EQ(fs::file_size(copy), size);
  EXPECT_EQ(run({"report", "--db", copy}).code, kExitOk);
}

TEST_F(CliTest, AnEmptyDatabaseNameIsAnError) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"plan", tiny_spec()},
                                                  {"run", tiny_spec()},
                                                  {"report"},
                                                  {"query", "v_runs"},
                                                  {"export", "--cell", kCell},
                                                  {"attribute", "--cell", kCell}}) {
    std::vector<std::string> args = command;
    args.insert(args.end(), {"--db", ""});
    const Ended ended = run(args);
    EXPECT_EQ(ended.code, kExitBadInput) << command[0];
    EXPECT_THAT(ended.err, HasSubstr("is no path to a database")) << command[0];
  }
}

TEST_F(CliTest, ResumeOfAnEmptyFileWritesNothing) {
  const std::string empty = write("empty.sqlite", "");
  EXPECT_EQ(run({"resume", "--db", empty}).code, kExitDatabase);
  EXPECT_EQ(fs::file_size(empty), 0u);
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

TEST_F(CliTest, ATraceWithoutRecordsSaysSo) {
  const Ended ended = run({"attribute", write("none.json", "{\"traceEvents\": []}")});
  EXPECT_EQ(ended.code, kExitOk);
  EXPECT_THAT(ended.err, HasSubstr("nothing to divide"));
}

TEST_F(CliTest, EventsThatAreNotUsedAreCounted) {
  const std::string trace = write("host.json", R"([
      {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2},
      {"ph": "X", "cat": "ac2g", "name": "flow", "ts": 1, "dur": 2},
      {"ph": "M", "name": "process_name"},
      {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "dur": 1}])");
  const char* counted = "events: 2 are neither device records nor phases and were not used\n";
  EXPECT_THAT(run({"attribute", trace}).out, HasSubstr(counted));
  EXPECT_THAT(run({"attribute", trace, "--format", "csv"}).err, HasSubstr(counted));
  EXPECT_THAT(run({"attribute", "--db", db(), "--cell", kCell}).out,
              ::testing::Not(HasSubstr("events: ")));
}

TEST_F(CliTest, DoctorAlwaysEndsWell) {
  const Ended ended = run({"doctor"});
  EXPECT_EQ(ended.code, kExitOk);
  EXPECT_THAT(ended.out, HasSubstr("SQLite"));
}

/// Ctrl-C stops a run at the end of its pass with exit code 130 and keeps the blocks before it. The
/// run is a process of its own, because the signal is sent to a process.
TEST_F(CliTest, InterruptKeepsTheBlocksBeforeIt) {
  const std::string database = path("interrupted.sqlite");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::ostringstream out;
    std::ostringstream err;
    const std::vector<std::string> args = {
        "run",   tiny_spec(),          "--db",  database,
        "--set", "measure.blocks=400", "--set", "workload.output_tokens=64"};
    _exit(run_cli(args, {out, err}));
  }
  const auto stored_blocks = [&] {
    const Ended ended =
        run({"query", "select count(*) from v_blocks", "--db", database, "--format", "csv"});
    return ended.code == kExitOk ? std::stoll(split(ended.out, '\n')[1]) : 0;
  };
  int status = 0;
  for (int i = 0; i < 600 && stored_blocks() == 0; ++i) {
    ASSERT_EQ(waitpid(child, &status, WNOHANG), 0) << "ended by itself: " << status;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  kill(child, SIGINT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kExitInterrupted);
  EXPECT_GT(stored_blocks(), 0);
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
