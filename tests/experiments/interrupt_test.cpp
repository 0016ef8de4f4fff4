// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Signals to the program, in a process of its own.
#include "experiments/interrupt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "experiments/cli.h"
#include "tests/experiments/experiment_fixture.h"
#include "tests/support/child_process.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

/// Its engine starts a worker and says nothing more, so that a run waits until it is stopped.
constexpr std::string_view kSpec = R"(experiment: stopped
question: what is left?
model: {synthetic: llama-tiny, seed: 1}
stacks:
  baseline: {engine: command, weights: f16, command: [sh, -c, "sleep 60 & echo $! > worker; wait"]}
  full: {runtime: fast, weights: f16, threads: 1}
workload: {prompts: pool.jsonl, prompt_tokens: 4, output_tokens: 4}
measure: {blocks: 2, trace_steps: 0}
)";

/// True when `condition` holds within some seconds.
template <class Condition>
bool soon(Condition condition) {
  for (int tries = 0; tries < 2000; ++tries) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// A process that nobody has reaped yet is gone as well.
bool is_gone(pid_t pid) {
  const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.at(name_end + 2) == 'Z';
}

class Interrupt : public ::testing::Test {
 protected:
  /// Starts the program; `ignored`: a signal that it finds ignored, as after nohup.
  void start(std::vector<std::string> args, int ignored = 0) {
    args.insert(args.begin(), TRIPTYCH_PROGRAM);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    const std::string err = (folder_ / "err").string();
    program_ = fork();
    if (program_ != 0) return;
    if (ignored != 0) signal(ignored, SIG_IGN);
    if (freopen(err.c_str(), "w", stderr) != nullptr) execv(argv[0], argv.data());
    _exit(127);
  }
  void start_run(int ignored = 0) {
    folder_.write("spec.yaml", kSpec);
    start({"run", (folder_ / "spec.yaml").string(), "--db", database(), "--cache",
           (folder_ / "cache").string()},
          ignored);
    const auto worker = [this] { return read_text(folder_ / "worker"); };
    ASSERT_TRUE(soon([&] { return worker().ends_with("\n"); })) << err();
    worker_ = std::stoi(worker());
  }
  std::string database() const { return (folder_ / "results.sqlite").string(); }
  std::string err() const { return read_text(folder_ / "err"); }
  void send(int signal) const { kill(program_, signal); }
  int wait() {
    int status = 0;
    EXPECT_EQ(waitpid(program_, &status, 0), program_);
    return status;
  }

  test::ExperimentFolder folder_;
  pid_t program_ = -1;
  pid_t worker_ = -1;
};

TEST_F(Interrupt, TheFirstSignalStopsAndSaysHowToGoOn) {
  for (const int first : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(strsignal(first));
    std::filesystem::remove(folder_ / "worker");
    start_run();
    send(first);
    const int status = wait();
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), kExitInterrupted);
    EXPECT_THAT(err(), HasSubstr("continue with: triptych resume --run 1 --db " + database()));
    EXPECT_TRUE(soon([this] { return is_gone(worker_); }));
  }
}

TEST_F(Interrupt, TheSecondSignalTakesTheWorkersAlong) {
  // At once, so that the first has not stopped the run yet; of two that are alike one could be
  // lost.
  for (const auto& [first, second] :
       {std::pair(SIGINT, SIGTERM), std::pair(SIGHUP, SIGINT), std::pair(SIGTERM, SIGHUP)}) {
    SCOPED_TRACE(std::string(strsignal(first)) + ", " + strsignal(second));
    std::filesystem::remove(folder_ / "worker");
    start_run();
    send(first);
    send(second);
    const int status = wait();
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_TRUE(WTERMSIG(status) == first || WTERMSIG(status) == second) << status;
    EXPECT_THAT(err(), HasSubstr("once more to stop at once"));
    EXPECT_THAT(err(), HasSubstr("continue with: triptych resume --db " + database() + "\n"));
    EXPECT_TRUE(soon([this] { return is_gone(worker_); }));
  }
}

TEST_F(Interrupt, QuitTakesTheWorkersAlongAtOnce) {
  start_run();
  send(SIGQUIT);
  EXPECT_EQ(WTERMSIG(wait()), SIGQUIT);
  EXPECT_TRUE(soon([this] { return is_gone(worker_); }));
}

TEST_F(Interrupt, ARunUnderNohupOutlivesItsTerminal) {
  start_run(SIGHUP);
  send(SIGHUP);
  send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(is_gone(program_));
  EXPECT_FALSE(is_gone(worker_));
  send(SIGINT);
  EXPECT_EQ(WEXITSTATUS(wait()), kExitInterrupted);
}

TEST_F(Interrupt, ARunThatWasKilledIsNotShownAsRunning) {
  start_run();
  const auto state = [this] {
    return run_program(
               {"query", "SELECT status FROM v_runs", "--db", database(), "--format", "csv"})
        .out;
  };
  EXPECT_EQ(state(), "status\r\nrunning\r\n");
  send(SIGKILL);
  EXPECT_EQ(WTERMSIG(wait()), SIGKILL);
  EXPECT_EQ(state(), "status\r\ninterrupted\r\n");
  kill(worker_, SIGKILL);  // nothing can be done about it by who was killed
}

TEST_F(Interrupt, SynthLeavesNothing) {
  std::filesystem::create_directory(folder_ / "models");
  const auto entries = [this] {
    return std::distance(std::filesystem::directory_iterator(folder_ / "models"), {});
  };
  const std::string target = (folder_ / "models").string() + "/smollm2";
  start({"synth", "smollm2-135m", target});
  ASSERT_TRUE(soon([&] { return entries() > 0; })) << err();
  send(SIGTERM);
  const int status = wait();
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kExitInterrupted);
  EXPECT_THAT(err(), HasSubstr("interrupted: nothing was made at " + target));
  EXPECT_EQ(entries(), 0);

  // What a second signal leaves, the next one removes.
  start({"synth", "smollm2-135m", target});
  ASSERT_TRUE(soon([&] { return entries() > 0; })) << err();
  send(SIGKILL);
  EXPECT_EQ(WTERMSIG(wait()), SIGKILL);
  EXPECT_EQ(entries(), 1);
  EXPECT_EQ(run_program({"synth", "smollm2-135m", target}).code, kExitOk);
  EXPECT_EQ(entries(), 1);
  EXPECT_TRUE(std::filesystem::exists(target));
}

}  // namespace
}  // namespace triptych
