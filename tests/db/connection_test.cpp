// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "db/connection.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>

#include "tests/support/temp_dir.h"

namespace triptych::db {
namespace {

Connection memory() { return Connection::open(":memory:", OpenMode::kReadWrite).value(); }

int64_t count(const Connection& connection, std::string_view sql) {
  Statement statement = connection.prepare(sql).value();
  EXPECT_TRUE(statement.step().value());
  return statement.int64_at(0);
}

TEST(Statement, BindsAndReadsEveryType) {
  const Connection c = memory();
  Statement s = c.prepare("SELECT ?, ?, ?, ?, ?, ?").value();
  s.bind(1, std::numeric_limits<int64_t>::min())
      .bind(2, 0.1)
      .bind(3, std::string_view("nul\0in", 6))
      .bind(4, std::nullopt)
      .bind(5, std::numeric_limits<double>::infinity())
      .bind(6, std::string_view());
  ASSERT_TRUE(s.step().value());
  EXPECT_EQ(s.column_count(), 6);
  EXPECT_EQ(s.int64_at(0), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(s.double_at(1), 0.1);
  EXPECT_EQ(s.text_at(2), std::string("nul\0in", 6));
  EXPECT_TRUE(s.is_null(3));
  EXPECT_TRUE(s.is_null(4));   // SQL has no infinity that survives a STRICT text dump
  EXPECT_FALSE(s.is_null(5));  // an empty text is not NULL
  EXPECT_TRUE(s.is_number(0));
  EXPECT_FALSE(s.is_real(0));
  EXPECT_TRUE(s.is_real(1));
  EXPECT_FALSE(s.is_number(2));
  EXPECT_FALSE(s.step().value());
}

TEST(Statement, OptionalsBindTheirValueOrNull) {
  const Connection c = memory();
  Statement s = c.prepare("SELECT ?, ?").value();
  s.bind(1, std::optional<double>(2.5)).bind(2, std::optional<std::string>());
  ASSERT_TRUE(s.step().value());
  EXPECT_EQ(s.double_at(0), 2.5);
  EXPECT_TRUE(s.is_null(1));
}

TEST(Statement, ExecuteCanBeRepeated) {
  const Connection c = memory();
  ASSERT_TRUE(c.execute("CREATE TABLE t (x INTEGER UNIQUE) STRICT"));
  Statement s = c.prepare("INSERT INTO t VALUES (?)").value();
  for (int64_t i = 0; i < 5; ++i) ASSERT_TRUE(s.bind(1, i).execute());
  const Status twice = s.bind(1, int64_t{3}).execute();
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(twice.error().message.find("UNIQUE constraint failed: t.x"), std::string::npos);
  ASSERT_TRUE(s.bind(1, int64_t{9}).execute());  // the failure did not stick
  EXPECT_EQ(count(c, "SELECT count(*) FROM t"), 6);
  EXPECT_EQ(c.last_insert_rowid(), 6);
}

TEST(Connection, PreparesExactlyOneStatement) {
  const Connection c = memory();
  EXPECT_TRUE(c.prepare("SELECT 1").has_value());
  EXPECT_TRUE(c.prepare("SELECT 1;  -- done\n /* really */ ").has_value());
  for (const char* sql : {"", "  ; ", "-- only a comment", "SELECT 1; SELECT 2", "SELECT 1; x",
                          "SELEC 1", "SELECT * FROM missing"}) {
    const auto result = c.prepare(sql);
    ASSERT_FALSE(result.has_value()) << sql;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << sql;
  }
}

TEST(Connection, EnforcesForeignKeys) {
  const Connection c = memory();
  EXPECT_EQ(count(c, "PRAGMA foreign_keys"), 1);
}

TEST(Connection, TakesOddFileNames) {
  const TempDir dir;
  for (const std::string name : {"a b?c#d%20e.sqlite", "file:x.sqlite", "Größe.sqlite"}) {
    const auto path = dir / name;
    {
      const Connection c = Connection::open(path, OpenMode::kReadWrite).value();
      ASSERT_TRUE(c.execute("CREATE TABLE t (x)"));
    }
    EXPECT_TRUE(std::filesystem::exists(path)) << name;
    const auto again = Connection::open(path, OpenMode::kReadOnly);
    ASSERT_TRUE(again.has_value()) << again.error().to_string();
    EXPECT_EQ(count(*again, "SELECT count(*) FROM t"), 0);
  }
}

TEST(Connection, ReadOnlyCannotWrite) {
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  ASSERT_TRUE(Connection::open(path, OpenMode::kReadWrite).value().execute("CREATE TABLE t (x)"));
  const Connection c = Connection::open(path, OpenMode::kReadOnly).value();
  const Status status = c.execute("INSERT INTO t VALUES (1)");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kReadOnly);
}

TEST(Transaction, RollsBackUnlessCommitted) {
  const Connection c = memory();
  ASSERT_TRUE(c.execute("CREATE TABLE t (x)"));
  {
    const Transaction dropped = Transaction::begin(c).value();
    ASSERT_TRUE(c.execute("INSERT INTO t VALUES (1)"));
  }
  EXPECT_EQ(count(c, "SELECT count(*) FROM t"), 0);
  {
    Transaction kept = Transaction::begin(c).value();
    Transaction moved = std::move(kept);
    ASSERT_TRUE(c.execute("INSERT INTO t VALUES (1)"));
    ASSERT_TRUE(moved.commit());
  }
  EXPECT_EQ(count(c, "SELECT count(*) FROM t"), 1);
}

}  // namespace
}  // namespace triptych::db
