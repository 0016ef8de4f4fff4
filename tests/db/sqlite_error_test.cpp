// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Every way in which a place, its rights or another process can stand in the way.
#include "db/sqlite_error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "db/store.h"
#include "tests/db/support.h"
#include "tests/support/temp_dir.h"

namespace triptych::db {
namespace {

namespace fs = std::filesystem;
using fs::perms;

constexpr int kShortWaitMs = 20;

void expect_error(const Result<Store>& result, ErrorCode code, const fs::path& where,
                  const std::string& part) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, code) << result.error().to_string();
  EXPECT_EQ(result.error().where, where.string());
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

/// A database with one run, closed.
void make_database(const fs::path& path) {
  Store store = Store::open(path, OpenMode::kReadWrite).value();
  RunRow run = make_run("kept");
  ASSERT_TRUE(store.insert_run(run, {}));
}

TEST(OpenError, MissingPlaces) {
  const TempDir dir;
  expect_error(Store::open(dir / "none.sqlite", OpenMode::kReadOnly), ErrorCode::kNotFound,
               dir / "none.sqlite", "no such database");
  EXPECT_FALSE(fs::exists(dir / "none.sqlite"));
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
    expect_error(Store::open(dir / "no/folder.sqlite", mode), ErrorCode::kNotFound,
                 dir / "no/folder.sqlite", "does not exist");
    expect_error(Store::open(dir.path(), mode), ErrorCode::kCorrupt, dir.path(), "is a folder");
  }
}

TEST(OpenError, ReadOnlyFile) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  make_database(path);
  fs::permissions(dir.path(), perms::all);
  fs::permissions(path, perms::owner_read | perms::group_read | perms::others_read);
  const WithoutRoot guard;
  expect_error(Store::open(path, OpenMode::kReadWrite), ErrorCode::kReadOnly, path,
               "cannot be written");
  EXPECT_EQ(Store::open(path, OpenMode::kReadOnly).value().runs("").value().size(), 1U);
}

class ReadOnlyFolder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = dir_ / "x.sqlite";
    make_database(path_);
    fs::permissions(path_, perms::all);
  }
  void lock_folder() const {
    fs::permissions(dir_.path(), perms::owner_read | perms::owner_exec | perms::group_read |
                                     perms::group_exec | perms::others_read | perms::others_exec);
  }
  TempDir dir_;
  fs::path path_;
};

TEST_F(ReadOnlyFolder, CannotBeWrittenButRead) {
  lock_folder();
  const WithoutRoot guard;
  expect_error(Store::open(path_, OpenMode::kReadWrite), ErrorCode::kReadOnly, path_,
               "cannot be written");
  expect_error(Store::open(dir_ / "new.sqlite", OpenMode::kReadWrite), ErrorCode::kReadOnly,
               dir_ / "new.sqlite", "cannot be written");
  const auto store = Store::open(path_, OpenMode::kReadOnly);
  ASSERT_TRUE(store.has_value()) << store.error().to_string();
  EXPECT_EQ(store->runs("").value().size(), 1U);
  EXPECT_EQ(store->query("SELECT experiment FROM v_runs").value().rows.size(), 1U);
}

TEST_F(ReadOnlyFolder, AWaitingLogIsNotIgnored) {
  // A copy that was taken while the log held a second run.
  const TempDir copies;
  {
    Store store = Store::open(path_, OpenMode::kReadWrite).value();
    RunRow run = make_run("in the log");
    ASSERT_TRUE(store.insert_run(run, {}));
    ASSERT_GT(fs::file_size(path_.string() + "-wal"), 0U);
    fs::copy_file(path_, copies / "x.sqlite");
    fs::copy_file(path_.string() + "-wal", copies / "x.sqlite-wal");
  }
  fs::permissions(copies / "x.sqlite", perms::all);
  fs::permissions(copies / "x.sqlite-wal", perms::all);
  fs::permissions(copies.path(), perms::owner_read | perms::owner_exec | perms::group_read |
                                     perms::group_exec | perms::others_read | perms::others_exec);
  {
    const WithoutRoot guard;
    expect_error(Store::open(copies / "x.sqlite", OpenMode::kReadOnly), ErrorCode::kReadOnly,
                 copies / "x.sqlite", "write-ahead log");
  }
  fs::permissions(copies.path(), perms::all);
  EXPECT_EQ(Store::open(copies / "x.sqlite", OpenMode::kReadOnly).value().runs("").value().size(),
            2U);
}

TEST(OpenError, LockedByAnother) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  make_database(path);
  Store second = Store::open(path, OpenMode::kReadWrite, kShortWaitMs).value();
  {
    const Connection holder = Connection::open(path, OpenMode::kReadWrite).value();
    const Transaction lock = Transaction::begin(holder).value();
    // Readers are not in the way of a writer, nor it in theirs.
    EXPECT_EQ(second.runs("").value().size(), 1U);
    EXPECT_TRUE(Store::open(path, OpenMode::kReadOnly, kShortWaitMs).has_value());
    RunRow run = make_run("waits");
    const Status status = second.insert_run(run, {});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kBusy);
    EXPECT_EQ(fs::path(status.error().where), path);
    EXPECT_EQ(run.run_id, 0);
  }
  RunRow run = make_run("goes on");
  EXPECT_TRUE(second.insert_run(run, {}));
}

TEST(OpenError, LockedAsAWhole) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  make_database(path);
  const Connection holder = Connection::open(path, OpenMode::kReadWrite).value();
  ASSERT_TRUE(holder.execute("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE"));
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
    expect_error(Store::open(path, mode, kShortWaitMs), ErrorCode::kBusy, path, "locked");
  }
}

TEST(OpenError, NotADatabase) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  std::string random(8192, ' ');
  for (size_t i = 0; i < random.size(); ++i) random[i] = static_cast<char>(random_bits(1, i));
  for (const std::string& content : {random, std::string("hello"), std::string(500, 'a')}) {
    std::ofstream(path, std::ios::binary) << content;
    for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
      expect_error(Store::open(path, mode), ErrorCode::kCorrupt, path, "not a");
    }
    std::ifstream file(path, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), content);
  }
}

TEST(OpenError, TruncatedAnywhere) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  make_database(path);
  const auto size = fs::file_size(path);
  for (uint64_t trial = 0; trial < 30; ++trial) {
    const auto copy = dir / ("cut" + std::to_string(trial));
    fs::copy_file(path, copy);
    fs::resize_file(copy, 1 + random_bits(9, trial) % (size - 1));
    for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
      const auto result = Store::open(copy, mode);
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().code, ErrorCode::kCorrupt) << result.error().to_string();
    }
  }
}

TEST(OpenError, DamagedPagesGiveErrorsNotCrashes) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  make_database(path);
  const auto size = fs::file_size(path);
  for (uint64_t trial = 0; trial < 60; ++trial) {
    const auto copy = dir / ("hit" + std::to_string(trial));
    fs::copy_file(path, copy);
    {
      std::fstream file(copy, std::ios::binary | std::ios::in | std::ios::out);
      for (uint64_t i = 0; i < 64; ++i) {
        file.seekp(static_cast<std::streamoff>(100 + random_bits(trial, 2 * i) % (size - 100)));
        file.put(static_cast<char>(random_bits(trial, 2 * i + 1)));
      }
    }
    // What is read may be right, or an error; the sanitizers and the clock judge the rest.
    const auto store = Store::open(copy, OpenMode::kReadOnly);
    if (!store) continue;
    static_cast<void>(store->runs(""));
    static_cast<void>(store->query("SELECT * FROM v_stack_summary"));
  }
}

TEST(FolderIsWritable, AsksForTheEffectiveUser) {
  const TempDir dir;
  EXPECT_TRUE(folder_is_writable(dir.path()));
  EXPECT_TRUE(folder_is_writable(""));
  EXPECT_FALSE(folder_is_writable(dir / "none"));
  fs::permissions(dir.path(), perms::owner_read | perms::owner_exec);
  const WithoutRoot guard;
  EXPECT_FALSE(folder_is_writable(dir.path()));
}

}  // namespace
}  // namespace triptych::db
