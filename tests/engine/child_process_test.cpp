// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "base/units.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t soon() { return now_ns() + 20 * kSecond; }

ChildProcess shell(const std::string& script) {
  auto child = ChildProcess::start({.argv = {"sh", "-c", script},
                                    .working_directory = "",
                                    .close_grace_ns = kSecond / 2,
                                    .term_grace_ns = kSecond / 5});
  TRIPTYCH_CHECK(child.has_value(), child.error().to_string());
  return std::move(*child);
}

std::string line_of(ChildProcess& child) {
  const auto line = child.read_line(soon(), nullptr);
  TRIPTYCH_CHECK(line.has_value() && line->has_value(), "a line");
  return **line;
}

/// True once no process has this number; a zombie of somebody else's still has it.
bool is_gone(pid_t pid) {
  for (int tries = 0; tries < 200; ++tries) {
    if (::kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(ChildProcess, EchoesLines) {
  ChildProcess child = shell("while read -r line; do echo \"<$line>\"; done");
  ASSERT_TRUE(child.write_line("one", soon(), nullptr));
  EXPECT_EQ(line_of(child), "<one>");
  ASSERT_TRUE(child.write_line("two", soon(), nullptr));
  EXPECT_EQ(line_of(child), "<two>");
  EXPECT_EQ(child.lines_read(), 2);
  child.stop();
  EXPECT_EQ(child.end_text(0), "exit code 0");
}

TEST(ChildProcess, ALargeExchangeDoesNotBlock) {
  // More than any pipe holds, while the child writes before it reads on.
  ChildProcess child = shell("cat");
  const std::string text(8 << 20, 'x');
  ASSERT_TRUE(child.write_line(text, soon(), nullptr));
  EXPECT_EQ(line_of(child), text);
}

TEST(ChildProcess, TheLastLineNeedsNoBreak) {
  ChildProcess child = shell("printf 'a\\n\\nb'");
  EXPECT_EQ(line_of(child), "a");
  EXPECT_EQ(line_of(child), "");
  EXPECT_EQ(line_of(child), "b");
  const auto end = child.read_line(soon(), nullptr);
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->has_value());
}

TEST(ChildProcess, ItsEndIsNoticedWhileAChildOfItHoldsItsOutput) {
  ChildProcess child = shell("printf 'a\\nb'; sleep 60 & exit 3");
  const int64_t begin = now_ns();
  EXPECT_EQ(line_of(child), "a");
  EXPECT_EQ(line_of(child), "b");
  const auto end = child.read_line(soon(), nullptr);
  ASSERT_TRUE(end) << end.error().to_string();
  EXPECT_FALSE(end->has_value());
  EXPECT_LT(now_ns() - begin, 10 * kSecond);
  EXPECT_EQ(child.end_text(0), "exit code 3");
}

TEST(ChildProcess, ItsEndIsNoticedWhileAChildOfItGoesOnTalking) {
  ChildProcess child = shell("(while sleep 0.01; do echo noise; done) & exit 3");
  const int64_t begin = now_ns();
  bool ended = false;
  while (!ended && now_ns() - begin < 10 * kSecond) {
    const auto line = child.read_line(soon(), nullptr);
    ASSERT_TRUE(line) << line.error().to_string();
    ended = !line->has_value();
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(child.end_text(0), "exit code 3");
}

TEST(ChildProcess, ItsEndIsNoticedWhileAChildOfItHoldsItsInput) {
  ChildProcess child = shell("exec 3<&0; sleep 60 <&3 & exit 3");
  const Status written = child.write_line(std::string(1 << 22, 'x'), soon(), nullptr);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "it closed its standard input");
}

TEST(ChildProcess, TimeRunsOut) {
  ChildProcess child = shell("sleep 60");
  const auto line = child.read_line(now_ns() + kSecond / 10, nullptr);
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().message, "no answer in time");
  EXPECT_EQ(child.end_text(0), "");
}

TEST(ChildProcess, WritingToAClosedInputIsAnErrorAndNoSignal) {
  ChildProcess child = shell("exec <&-; echo closed; sleep 60");
  EXPECT_EQ(line_of(child), "closed");
  const Status written = child.write_line(std::string(1 << 22, 'x'), soon(), nullptr);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "it closed its standard input");
}

TEST(ChildProcess, TellsHowItEndedAndWhatItSaid) {
  ChildProcess killed = shell("echo oops >&2; kill -KILL $$");
  EXPECT_EQ(killed.end_text(20 * kSecond), "signal 9 (Killed)");
  EXPECT_EQ(killed.error_tail(), "oops");
  ChildProcess left = shell("exit 7");
  EXPECT_EQ(left.end_text(20 * kSecond), "exit code 7");
  EXPECT_EQ(left.error_tail(), "");
}

TEST(ChildProcess, OnlyTheEndOfALongErrorIsKept) {
  ChildProcess child = shell("i=0; while [ $i -lt 500 ]; do echo line $i >&2; i=$((i+1)); done");
  EXPECT_EQ(child.end_text(20 * kSecond), "exit code 0");
  const std::string tail = child.error_tail();
  EXPECT_LE(tail.size(), 2000U);
  EXPECT_TRUE(tail.starts_with("line ")) << tail.substr(0, 20);
  EXPECT_TRUE(tail.ends_with("line 499"));
}

TEST(ChildProcess, OneThatIgnoresEverythingIsKilledWithItsChildren) {
  pid_t pid = 0;
  const int64_t begin = now_ns();
  {
    ChildProcess child = shell("trap '' TERM; sleep 60 & echo $!; while true; do sleep 60; done");
    pid = static_cast<pid_t>(std::stol(line_of(child)));
    ASSERT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_TRUE(is_gone(pid));
  EXPECT_GE(now_ns() - begin, kSecond / 2 + kSecond / 5);  // it had its time
  EXPECT_LT(now_ns() - begin, 20 * kSecond);
}

TEST(ChildProcess, ChildrenOfOneThatLeftAreKilledToo) {
  ChildProcess child = shell("sleep 60 >/dev/null & echo $!");
  const auto pid = static_cast<pid_t>(std::stol(line_of(child)));
  child.stop();
  EXPECT_TRUE(is_gone(pid));
}

TEST(ChildProcess, RunsWhereItIsTold) {
  const TempDir folder;
  const std::string program = folder.write("program.sh", "#!/bin/sh\npwd\n").string();
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  auto child = ChildProcess::start({.argv = {"./program.sh"}, .working_directory = folder.path()});
  ASSERT_TRUE(child) << child.error().to_string();
  EXPECT_EQ(std::filesystem::path(line_of(*child)), std::filesystem::canonical(folder.path()));

  const auto nowhere =
      ChildProcess::start({.argv = {"sh"}, .working_directory = folder / "missing"});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(nowhere.error().message, ::testing::HasSubstr("cannot enter its folder"));
}

TEST(ChildProcess, AProgramThatCannotRunIsAnError) {
  const TempDir folder;
  const std::string file = folder.write("data", "no program").string();
  const auto child = ChildProcess::start({.argv = {file}, .working_directory = ""});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::kIo);
  EXPECT_EQ(child.error().where, file);
}

/// What the second Ctrl-C does: the workers go, too, and the owner finds its child dead.
TEST(ChildProcess, AllGroupsAreKilledAtOnce) {
  ChildProcess one = shell("sleep 60 & echo $!; wait");
  ChildProcess two = shell("sleep 60 & echo $!; wait");
  const pid_t worker_of_one = std::stoi(line_of(one));
  const pid_t worker_of_two = std::stoi(line_of(two));
  {
    const ChildProcess ended = shell("true");  // its number is no longer in the list
  }
  kill_child_groups();
  EXPECT_TRUE(is_gone(worker_of_one));
  EXPECT_TRUE(is_gone(worker_of_two));
  EXPECT_EQ(one.end_text(5 * kSecond), "signal 9 (Killed)");
  EXPECT_EQ(two.end_text(5 * kSecond), "signal 9 (Killed)");
}

}  // namespace
}  // namespace triptych
