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
    EXPECT_EQ(store.query("PRAGMA user_version").value().rows[0][0],
              std::to_string(kSchemaVersion));
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
  const std::array<Migration, 3> steps = {
      Migration{kSchemaVersion, "this is not SQL"},
      Migration{kSchemaVersion + 1, "CREATE TABLE two (x INTEGER) STRICT"},
      Migration{kSchemaVersion + 2, "ALTER TABLE two ADD COLUMN y REAL"}};
  ASSERT_TRUE(upgrade(c, kSchemaVersion, steps));
  EXPECT_EQ(number(c, "PRAGMA user_version"), kSchemaVersion + 2);
  EXPECT_TRUE(c.execute("INSERT INTO two VALUES (1, 2.5)"));
}

TEST(Upgrade, AFailedStepLeavesTheVersionBefore) {
  const Connection c = Connection::open(":memory:", OpenMode::kReadWrite).value();
  ASSERT_TRUE(c.execute(kSchemaSql));
  const std::array<Migration, 2> steps = {
      Migration{kSchemaVersion + 1, "CREATE TABLE two (x INTEGER) STRICT"},
      Migration{kSchemaVersion + 2, "CREATE TABLE three (x INTEGER) STRICT; SELECT nonsense"}};
  const Status status = upgrade(c, kSchemaVersion, steps);
  ASSERT_FALSE(status);
  EXPECT_EQ(number(c, "PRAGMA user_version"), kSchemaVersion + 1);
  EXPECT_EQ(number(c, "SELECT count(*) FROM sqlite_schema WHERE name = 'three'"), 0);
}

/// A database as version 1 made it, with a run of one cell, block and request.
void make_version_1(const fs::path& path) {
  const Connection c = raw(path);
  ASSERT_TRUE(c.execute(bytes_of(fs::path(TRIPTYCH_SOURCE_DIR) / "tests/db/schema_v1.sql")));
  const auto insert = [&c](const std::string& table, const std::string& row) {
    const Status status = c.execute("INSERT INTO " + table + " VALUES (" + row + ")");
    ASSERT_TRUE(status) << status.error().to_string();
  };
  insert("run",
         "1, 'old', 'q', 'h', 'p', 't', 1, 1, 'u', 'u', 'complete', '0', 's', 0, 'c', 'b', 'cpu', "
         "2, 3, 'os', '', '', 1.5, 2.5");
  insert("cell",
         "1, 1, 'h', 'full@c=1', 'c=1', 'full', 0, 'builtin', 'fast', 'f16', 'auto', 'f16', "
         "'tp=1', 'cpu', 2, 1, 1, 8, 2, 1, 'greedy', 'ignore', 'p', 'h', 'b', 'm', 'o', 'h', "
         "'done', ''");
  insert("block", "1, 1, 0, 0, 'u', 1000, 2, 1, 0.5, NULL");
  insert("request", "1, 0, 8, 2, 600, 400.0, 1000, '[400]'");
}

std::vector<std::string> columns_of_tables(const Connection& c) {
  Statement s = c.prepare(
                     "SELECT t.name, x.cid, x.name, x.type, x.\"notnull\", x.dflt_value, x.pk "
                     "FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS x "
                     "WHERE t.type = 'table' ORDER BY t.name, x.cid")
                    .value();
  std::vector<std::string> columns;
  while (s.step().value()) {
    std::string text;
    for (int i = 0; i < s.column_count(); ++i) text += s.text_at(i) + "|";
    columns.push_back(text);
  }
  return columns;
}

TEST(Migrate, AVersion1DatabaseBecomesWhatANewOneIs) {
  const TempDir dir;
  make_version_1(dir / "old.sqlite");
  {
    const Store store = Store::open(dir / "old.sqlite", OpenMode::kReadWrite).value();
    const std::vector<BlockRow> blocks = store.blocks(1).value();
    ASSERT_EQ(blocks.size(), 1U);
    EXPECT_EQ(blocks[0].prefill_steps, std::nullopt);
    EXPECT_EQ(blocks[0].decode_host_ns, std::nullopt);
    EXPECT_EQ(
        store.query("SELECT host_ns_per_decode_step IS NULL FROM v_blocks").value().rows[0][0],
        "1");
    EXPECT_EQ(blocks[0].requests.at(0).queue_ns, std::nullopt);
    EXPECT_EQ(blocks[0].requests.at(0).preemptions, 0);
    EXPECT_EQ(store.cells(1).value().at(0).arrivals, "closed");
  }
  static_cast<void>(Store::open(dir / "new.sqlite", OpenMode::kReadWrite).value());
  EXPECT_EQ(columns_of_tables(raw(dir / "old.sqlite")), columns_of_tables(raw(dir / "new.sqlite")));
  EXPECT_EQ(text(raw(dir / "old.sqlite"), "PRAGMA integrity_check"), "ok");
}

TEST(Migrate, AnOlderDatabaseIsReadWithoutBeingChanged) {
  const TempDir dir;
  const auto path = dir / "old.sqlite";
  make_version_1(path);
  const std::string before = bytes_of(path);
  const auto store = Store::open(path, OpenMode::kReadOnly);
  ASSERT_TRUE(store) << store.error().to_string();
  EXPECT_TRUE(store->is_copy());
  EXPECT_EQ(store->query("SELECT p50_ns FROM v_latency WHERE metric = 'ttft'").value().rows[0][0],
            "600");
  EXPECT_EQ(bytes_of(path), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);
}

TEST(Migrate, AVersionBeforeTheFirstIsNotOurs) {
  // Versions begin at 1: version 0 with our identity is a file that contradicts itself.
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
