// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/dead_runs.h"

#include <gtest/gtest.h>

#include "experiments/run_lock.h"
#include "tests/experiments/experiment_fixture.h"

namespace triptych {
namespace {

class DeadRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = db::Store::open(path_, db::OpenMode::kReadWrite);
    ASSERT_TRUE(store);
    db::RunRow run;
    run.status = "running";
    ASSERT_TRUE(store->insert_run(run, {}));
  }
  int64_t marked() const { return test::count(path_, "SELECT sum(interrupted) FROM run"); }

  test::ExperimentFolder folder_;
  std::filesystem::path path_ = folder_ / "results.sqlite";
};

TEST_F(DeadRuns, AreMarkedOnce) {
  mark_dead_runs(path_);
  EXPECT_EQ(marked(), 1);
  const auto time = std::filesystem::last_write_time(path_);
  mark_dead_runs(path_);
  EXPECT_EQ(std::filesystem::last_write_time(path_), time);
}

TEST_F(DeadRuns, NotWhileAProgramMeasures) {
  {
    const auto lock = RunLock::acquire(path_);
    ASSERT_TRUE(lock);
    mark_dead_runs(path_);
    EXPECT_EQ(marked(), 0);
  }
  mark_dead_runs(path_);
  EXPECT_EQ(marked(), 1);
}

TEST_F(DeadRuns, WhatCannotBeWrittenOrIsNoDatabaseIsLeft) {
  mark_dead_runs(folder_ / "none.sqlite");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.sqlite"));
  folder_.write("text", "no database");
  mark_dead_runs(folder_ / "text");
  EXPECT_EQ(std::filesystem::file_size(folder_ / "text"), 11u);
}

}  // namespace
}  // namespace triptych
