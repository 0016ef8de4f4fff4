// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Commands that read or go on with what a database or a trace file holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "db/connection.h"
#include "db/store.h"
#include "tests/experiments/cli_fixture.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

  const Ended prompts = run({"attribute", file, "--phase", "prefill"});
  EXPECT_EQ(prompts.code, kExitOk) << prompts.err;
  EXPECT_THAT(prompts.out, HasSubstr("prefill of 16 tokens, residual 0 ns"));
  const std::string steps = write("steps.json", R"({"traceEvents": [{"ph": "X", "cat": "kernel",
      "name": "gemm", "ts": 1, "dur": 2}]})");
  EXPECT_THAT(run({"attribute", steps}).out, HasSubstr("window 2000 ns, whole trace"));
  EXPECT_THAT(run({"attribute", steps, "--phase", "prefill"}).err, HasSubstr("no prefill"));

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
  EXPECT_EQ(run({"query", "SELECT status FROM v_runs", "--db", database, "--format", "csv"}).out,
            "status\r\ninterrupted\r\n");
}

}  // namespace
}  // namespace triptych
