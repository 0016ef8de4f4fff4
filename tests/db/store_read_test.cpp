// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "db/store.h"
#include "tests/db/support.h"
#include "tests/support/temp_dir.h"

namespace triptych::db {
namespace {

class Query : public testing::Test {
 protected:
  void SetUp() override {
    RunRow run = make_run("test");
    std::vector<CellRow> cells = {make_cell("a", 0)};
    ASSERT_TRUE(store_.insert_run(run, cells));
  }
  Store store_ = Store::open(":memory:", OpenMode::kReadWrite).value();
};

TEST_F(Query, GivesTextWithNullsAndNumericColumns) {
  const auto table =
      store_
          .query(
              "SELECT 1 AS i, 2.5 AS r, 'x' AS t, NULL AS n, 1 AS mixed, 9e999 AS big "
              "UNION ALL SELECT -7, NULL, '12', NULL, 'word', 1.0")
          .value();
  EXPECT_EQ(table.columns, (std::vector<std::string>{"i", "r", "t", "n", "mixed", "big"}));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0][0], "1");
  EXPECT_EQ(table.rows[0][1], "2.5");
  EXPECT_EQ(table.rows[1][1], std::nullopt);
  EXPECT_EQ(table.rows[1][4], "word");
  // 't' holds text that looks like a number; 'n' holds nothing; an infinity is no JSON number.
  EXPECT_EQ(table.numeric, (std::vector<bool>{true, true, false, false, false, false}));
}

TEST_F(Query, DoublesReadBackToTheLastBit) {
  for (uint64_t i = 0; i < 200; ++i) {
    const double value = random_normal(1, i) * 1e-3;
    const auto table = store_.query(str_format("SELECT %.17g AS v", value)).value();
    EXPECT_EQ(std::strtod(table.rows[0][0]->c_str(), nullptr), value);
  }
}

TEST_F(Query, EmptyResultKeepsItsColumns) {
  const auto table = store_.query("SELECT * FROM v_threats").value();
  EXPECT_TRUE(table.rows.empty());
  EXPECT_EQ(table.columns[0], "experiment");
  EXPECT_EQ(table.numeric.size(), table.columns.size());
}

TEST_F(Query, RefusesToWrite) {
  const TempDir dir;
  const std::string file = (dir / "new.sqlite").string();
  for (const std::string& sql : {std::string("DELETE FROM cell"),
                                 std::string("UPDATE run SET status = 'complete'"),
                                 std::string("INSERT INTO name (text) VALUES ('x')"),
                                 std::string("DROP TABLE threat"),
                                 std::string("CREATE TABLE t (x)"),
                                 std::string("CREATE TEMP TABLE t (x)"),
                                 std::string("WITH x AS (SELECT 1) DELETE FROM cell"),
                                 std::string("BEGIN"),
                                 std::string("COMMIT"),
                                 std::string("SAVEPOINT s"),
                                 std::string("VACUUM"),
                                 std::string("ANALYZE"),
                                 std::string("REINDEX"),
                                 std::string("PRAGMA user_version = 9"),
                                 std::string("PRAGMA foreign_keys = OFF"),
                                 std::string("PRAGMA foreign_keys"),
                                 std::string("PRAGMA journal_mode = DELETE"),
                                 std::string("PRAGMA writable_schema = 1"),
                                 std::string("DETACH main"),

                                 std::string("UPDATE sqlite_master SET sql = 'x'"),
                                 std::string("DELETE FROM sqlite_schema"),
                                 "ATTACH '" + file + "' AS other",
                                 "VACUUM INTO '" + file + "'"}) {
    const auto result = store_.query(sql);
    ASSERT_FALSE(result.has_value()) << sql;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << sql;
    // SQLite itself guards its schema table, with words of its own.
    EXPECT_TRUE(result.error().message.find("only read") != std::string::npos ||
                result.error().message.find("may not be modified") != std::string::npos)
        << sql << ": " << result.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(store_.query("SELECT * FROM cell").value().rows.size(), 1U);
  // The guard is gone after each query.
  RunRow run = make_run("after");
  EXPECT_TRUE(store_.insert_run(run, {}));
}

TEST_F(Query, RefusesNonsense) {
  for (const char* sql : {"", "v_runs", "SELECT", "SELECT * FROM nothing", "SELECT 1; SELECT 2",
                          "SELECT 1; DELETE FROM cell", "SELECT load_extension('x')"}) {
    const auto result = store_.query(sql);
    ASSERT_FALSE(result.has_value()) << sql;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << sql;
  }
  const auto result = store_.query("SELECT tpot FROM v_runs");
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("no such column: tpot"), std::string::npos);
}

TEST_F(Query, AllowsWhatOnlyInforms) {
  EXPECT_TRUE(store_.query("PRAGMA table_info(run)").has_value());
  EXPECT_TRUE(store_.query("PRAGMA user_version").has_value());
  EXPECT_TRUE(store_.query("SELECT name FROM pragma_table_info('v_runs')").has_value());
  EXPECT_EQ(store_.query("SELECT sum(value) FROM json_each('[1,2,3]')").value().rows[0][0], "6");
  EXPECT_TRUE(store_.query("EXPLAIN QUERY PLAN SELECT * FROM v_runs").has_value());
  const auto table = store_
                         .query(
                             "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                             "WHERE i < 5) SELECT sum(i) AS total FROM n;  -- fifteen")
                         .value();
  EXPECT_EQ(table.rows[0][0], "15");
}

TEST_F(Query, ViewNames) {
  EXPECT_EQ(store_.view_names().value(),
            (std::vector<std::string>{"v_blocks", "v_decomposition", "v_device_time", "v_history",
                                      "v_latency", "v_requests", "v_runs", "v_serving",
                                      "v_stack_summary", "v_threats", "v_token_time"}));
}

TEST_F(Query, DamagedContentIsAnErrorNotACrash) {
  BlockRow block;
  block.cell_id = 1;
  block.requests.emplace_back();
  ASSERT_TRUE(store_.insert_block({&block, 1}));
  const TempDir dir;
  const auto path = dir / "x.sqlite";
  Store store = Store::open(path, OpenMode::kReadWrite).value();
  RunRow run = make_run("test");
  std::vector<CellRow> cells = {make_cell("a", 0)};
  ASSERT_TRUE(store.insert_run(run, cells));
  ASSERT_TRUE(store.insert_block({&block, 1}));
  ASSERT_TRUE(Connection::open(path, OpenMode::kReadWrite)
                  .value()
                  .execute("UPDATE request SET itl_ns = 'oops'"));
  const auto result = store.blocks(1);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace triptych::db
