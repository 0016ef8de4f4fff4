// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "db/row_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "db/schema.sql.h"
#include "tests/db/support.h"

namespace triptych::db {
namespace {

TEST(JsonArray, RoundTrip) {
  EXPECT_EQ(json_array({}), "[]");
  EXPECT_EQ(json_array({1, -2, 3}), "[1,-2,3]");
  const std::vector<int64_t> extreme = {std::numeric_limits<int64_t>::min(), 0,
                                        std::numeric_limits<int64_t>::max()};
  EXPECT_EQ(parse_json_array(json_array(extreme)).value(), extreme);
  EXPECT_TRUE(parse_json_array("[]").value().empty());
}

TEST(JsonArray, RefusesAnythingElse) {
  for (const char* text : {"", "[", "]", "[1,]", "[,1]", "[1,,2]", "[1.5]", "[a]", "1,2", "[1 2]",
                           "[99999999999999999999]", "{\"a\":1}", "[1]x"}) {
    const auto result = parse_json_array(text);
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
  }
}

TEST(InsertSql, NamesEveryColumnOnce) {
  EXPECT_EQ(insert_sql<PhaseRow>("trace_id, ordinal, "),
            "INSERT INTO phase (trace_id, ordinal, kind, phase_index, tokens, start_ns, end_ns) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)");
}

// The tables have exactly the columns of the lists, besides keys that the lists leave out.
template <class Row>
void expect_table_columns(const std::vector<std::string>& besides) {
  const Connection connection = Connection::open(":memory:", OpenMode::kReadWrite).value();
  ASSERT_TRUE(connection.execute(kSchemaSql));
  Statement select = connection
                         .prepare("SELECT name FROM pragma_table_info('" +
                                  std::string(kTable<Row>) + "') ORDER BY name")
                         .value();
  std::vector<std::string> in_table;
  while (select.step().value()) in_table.push_back(select.text_at(0));
  std::vector<std::string> listed = besides;
  const Row row;
  for_each_field(row, [&](std::string_view column, const auto&) { listed.emplace_back(column); });
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(in_table, listed) << kTable<Row>;
}

TEST(RowFields, CoverTheSchema) {
  expect_table_columns<RunRow>({});
  expect_table_columns<CellRow>({});
  expect_table_columns<CellFactsRow>({});
  expect_table_columns<BlockRow>({"block_id"});
  expect_table_columns<RequestRow>({"block_id"});
  expect_table_columns<TraceRow>({"trace_id"});
  expect_table_columns<PhaseRow>({"trace_id", "ordinal"});
  expect_table_columns<TokenTimeRow>({"trace_id"});
  expect_table_columns<SummaryRow>({});
  expect_table_columns<DecompositionRow>({"factor", "factor_lo", "factor_hi"});
  expect_table_columns<ThreatRow>({"threat_id"});
}

}  // namespace
}  // namespace triptych::db
