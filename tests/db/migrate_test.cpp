// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "db/migrate.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "attribution/time_class.h"
#include "db/schema.sql.h"
#include "db/store.h"
#include "tests/db/support.h"
#include "tests/support/temp_dir.h"

namespace triptych::db {
namespace {

namespace fs = std::filesystem;

int64_t number(const Connection& connection, std::string_view sql) {
  Statement statement = connection.prepare(sql).value();
  EXPECT_TRUE(statement.step().value());
  return statement.int64_at(0);
}

std::string text(const Connection& connection, std::string_view sql) {
  Statement statement = connection.prepare(sql).value();
  EXPECT_TRUE(statement.step().value());
  return statement.text_at(0);
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Connection raw(const fs::path& path) {
  return Connection::open(path, OpenMode::kReadWrite).value();
}

TEST(Schema, IdentifiesItself) {
  const Connection c = Connection::open(":memory:", OpenMode::kReadWrite).value();
  ASSERT_TRUE(migrate(c, OpenMode::kReadWrite));
  EXPECT_EQ(number(c, "PRAGMA user_version"), kSchemaVersion);
  EXPECT_EQ(number(c, "PRAGMA application_id"), kApplicationId);
  EXPECT_EQ(text(c, "PRAGMA integrity_check"), "ok");
}

TEST(Schema, EveryTableIsStrict) {
  const Connection c = Connection::open(":memory:", OpenMode::kReadWrite).value();
  ASSERT_TRUE(migrate(c, OpenMode::kReadWrite));
  EXPECT_GE(number(c, "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND strict"),
            14);
  EXPECT_EQ(number(c,
                   "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND "
                   "NOT strict AND name NOT LIKE 'sqlite%'"),
            0);
}

TEST(Schema, TimeClassesAreThoseOfTheAttribution) {
  const Connection c = Connection::open(":memory:", OpenMode::kReadWrite).value();
  ASSERT_TRUE(migrate(c, OpenMode::kReadWrite));
  Statement s =
      c.prepare("SELECT name, class_group, ordinal FROM time_class ORDER BY ordinal").value();
  for (size_t i = 0; i < kNumTimeClasses; ++i) {
    ASSERT_TRUE(s.step().value());
    const auto time_class = static_cast<TimeClass>(i);
    EXPECT_EQ(s.text_at(0), kTimeClassNames[i]);
    EXPECT_EQ(s.int64_at(2), static_cast<int64_t>(i));
    const std::string group = is_compute(time_class)        ? "compute"
                              : is_coordination(time_class) ? "coordination"
                                                            : std::string(kTimeClassNames[i]);
    EXPECT_EQ(s.text_at(1), group);
  }
  EXPECT_FALSE(s.step().value());
}

TEST(Migrate, CreatesOnceAndReopens) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  {
    Store store = Store::open(path, OpenMode::kReadWrite).value();
    RunRow run = make_run("first");
    ASSERT_TRUE(store.insert_run(run, {}));
    EXPECT_EQ(store.query("PRAGMA user_version").value().rows[0][0], "1");
  }
  EXPECT_EQ(text(raw(path), "PRAGMA journal_mode"), "wal");
  const Store again = Store::open(path, OpenMode::kReadWrite).value();
  EXPECT_EQ(again.runs("").value().size(), 1U);
}

TEST(Migrate, AnEmptyFileBecomesADatabase) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  std::ofstream(path).close();
  const auto read_only = Store::open(path, OpenMode::kReadOnly);
  ASSERT_FALSE(read_only.has_value());
  EXPECT_EQ(read_only.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(fs::file_size(path), 0U);
  EXPECT_TRUE(Store::open(path, OpenMode::kReadWrite).has_value());
}

TEST(Migrate, RefusesANewerSchemaUntouched) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  static_cast<void>(Store::open(path, OpenMode::kReadWrite).value());
  ASSERT_TRUE(raw(path).execute("PRAGMA user_version = 7"));
  const std::string before = bytes_of(path);
  for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
    const auto result = Store::open(path, mode);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kSchemaTooNew);
    EXPECT_EQ(result.error().where, path.string());
    EXPECT_NE(result.error().message.find("schema version 7"), std::string::npos);
    EXPECT_NE(result.error().message.find("up to " + std::to_string(kSchemaVersion)),
              std::string::npos);
  }
  EXPECT_EQ(bytes_of(path), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);  // no -wal, no -shm
}

TEST(Migrate, RefusesANewerSchemaThatIsOnlyInTheLog) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  const Store store = Store::open(path, OpenMode::kReadWrite).value();
  const Connection newer = raw(path);
  ASSERT_TRUE(newer.execute("PRAGMA user_version = 7"));
  ASSERT_TRUE(check_header(path));  // the header in the file is still the old one
  const auto result = Store::open(path, OpenMode::kReadWrite);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kSchemaTooNew);
}

TEST(Migrate, RefusesOtherPrograms) {
  const TempDir dir;
  const std::array<std::string, 3> others = {"CREATE TABLE t (x)",
                                             "PRAGMA application_id = 12345; CREATE TABLE t (x)",
                                             "PRAGMA user_version = 3"};
  for (size_t i = 0; i < others.size(); ++i) {
    const auto path = dir / ("other" + std::to_string(i));
    ASSERT_TRUE(raw(path).execute(others[i]));
    const std::string before = bytes_of(path);
    for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
      const auto result = Store::open(path, mode);
      ASSERT_FALSE(result.has_value()) << others[i];
      EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
      EXPECT_EQ(result.error().where, path.string());
      EXPECT_NE(result.error().message.find("not one of Triptych"), std::string::npos);
    }
    EXPECT_EQ(bytes_of(path), before);
  }
}

TEST(Migrate, ReplacesViewsThatDiffer) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  static_cast<void>(Store::open(path, OpenMode::kReadWrite).value());
  ASSERT_TRUE(
      raw(path).execute("DROP VIEW v_runs; DROP VIEW v_threats;"
                        "CREATE VIEW v_runs AS SELECT 1 AS old;"
                        "CREATE VIEW mine AS SELECT 2 AS kept"));
  // Reading changes nothing.
  EXPECT_EQ(Store::open(path, OpenMode::kReadOnly)->query("SELECT * FROM v_runs")->columns,
            std::vector<std::string>{"old"});
  const Store store = Store::open(path, OpenMode::kReadWrite).value();
  EXPECT_EQ(store.query("SELECT * FROM v_runs").value().columns[0], "run_id");
  EXPECT_TRUE(store.query("SELECT * FROM v_threats").has_value());
  EXPECT_EQ(store.query("SELECT * FROM mine").value().rows[0][0], "2");
}

TEST(Migrate, WritesNothingWhereNothingDiffers) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  static_cast<void>(Store::open(path, OpenMode::kReadWrite).value());
  const std::string before = bytes_of(path);
  static_cast<void>(Store::open(path, OpenMode::kReadWrite).value());
  EXPECT_EQ(bytes_of(path), before);
}

TEST(Migrate, TwoAtOnceCreateOneDatabase) {
  for (int trial = 0; trial < 5; ++trial) {
    const TempDir dir;
    const auto path = dir / "x.sqlite";
    std::vector<std::string> errors(4);
    std::vector<std::thread> threads;
    for (std::string& error : errors) {
      threads.emplace_back([&path, &error] {
        Result<Store> store = Store::open(path, OpenMode::kReadWrite);
        RunRow run = make_run("race");
        const Status status =
            store ? store->insert_run(run, {}) : Status(Unexpected{store.error()});
        if (!status) error = status.error().to_string();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    EXPECT_EQ(Store::open(path, OpenMode::kReadOnly)->runs("race")->size(), errors.size());
  }
}

TEST(Upgrade, AppliesTheStepsThatAreMissing) {
  const Connection c = Connection::open(":memory:", OpenMode::kReadWrite).value();
  ASSERT_TRUE(c.execute(kSchemaSql));
  const std::array<Migration, 3> steps = {Migration{1, "this is not SQL"},
                                          Migration{2, "CREATE TABLE two (x INTEGER) STRICT"},
                                          Migration{3, "ALTER TABLE two ADD COLUMN y REAL"}};
  ASSERT_TRUE(upgrade(c, 1, steps));
  EXPECT_EQ(number(c, "PRAGMA user_version"), 3);
  EXPECT_TRUE(c.execute("INSERT INTO two VALUES (1, 2.5)"));
}

TEST(Upgrade, AFailedStepLeavesTheVersionBefore) {
  const Connection c = Connection::open(":memory:", OpenMode::kReadWrite).value();
  ASSERT_TRUE(c.execute(kSchemaSql));
  const std::array<Migration, 2> steps = {
      Migration{2, "CREATE TABLE two (x INTEGER) STRICT"},
      Migration{3, "CREATE TABLE three (x INTEGER) STRICT; SELECT nonsense"}};
  const Status status = upgrade(c, 1, steps);
  ASSERT_FALSE(status);
  EXPECT_EQ(number(c, "PRAGMA user_version"), 2);
  EXPECT_EQ(number(c, "SELECT count(*) FROM sqlite_schema WHERE name = 'three'"), 0);
}

TEST(Migrate, AnOlderSchemaIsNotReadWithoutMigration) {
  // The list begins at version 1, so version 0 of ours is a file that contradicts itself.
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  static_cast<void>(Store::open(path, OpenMode::kReadWrite).value());
  ASSERT_TRUE(raw(path).execute("PRAGMA user_version = 0"));
  const auto result = Store::open(path, OpenMode::kReadWrite);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace triptych::db
