// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/run_lock.h"

#include <gtest/gtest.h>

#include "tests/experiments/experiment_fixture.h"

namespace triptych {
namespace {

TEST(RunLock, SecondHolderIsRefusedUntilTheFirstIsGone) {
  const test::ExperimentFolder folder;
  folder.write("db", "");
  {
    auto first = RunLock::acquire(folder / "db");
    ASSERT_TRUE(first);
    const RunLock moved = std::move(*first);
    const auto second = RunLock::acquire(folder / "db");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kBusy);
    EXPECT_EQ(second.error().where, (folder / "db").string());
  }
  EXPECT_TRUE(RunLock::acquire(folder / "db"));
}

TEST(RunLock, MissingFileIsAnError) {
  const test::ExperimentFolder folder;
  const auto lock = RunLock::acquire(folder / "none");
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, ErrorCode::kIo);
}

/// What a run needs: rows can be written while the lock is held, and after it is gone.
TEST(RunLock, DoesNotDisturbTheDatabase) {
  const test::ExperimentFolder folder;
  const auto path = folder / "results.sqlite";
  auto store = db::Store::open(path, db::OpenMode::kReadWrite);
  ASSERT_TRUE(store);
  const auto lock = RunLock::acquire(path);
  ASSERT_TRUE(lock);
  db::RunRow run;
  run.status = "running";
  ASSERT_TRUE(store->insert_run(run, {}));
  EXPECT_EQ(test::count(path, "SELECT count(*) FROM run"), 1);
}

}  // namespace
}  // namespace triptych
