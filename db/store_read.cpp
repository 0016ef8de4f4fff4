// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Store: everything that reads.
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "db/row_io.h"
#include "db/store.h"

namespace triptych::db {

namespace {

/// Rows of `from` ("run WHERE ...") with the columns of Row, which are qualified by its table.
template <class Row>
Result<std::vector<Row>> select_rows(const Connection& connection, std::string_view tail,
                                     int64_t id) {
  std::string sql = "SELECT ";
  const Row row;
  for_each_field(row, [&sql](std::string_view column, const auto&) {
    if (!sql.ends_with("SELECT ")) sql += ", ";
    sql.append(kTable<Row>).append(".").append(column);
  });
  sql.append(" FROM ").append(kTable<Row>).append(" ").append(tail);
  TRIPTYCH_TRY(Statement statement, connection.prepare(sql));
  statement.bind(1, id);
  return read_rows<Row>(statement);
}

Result<std::vector<ActivityRow>> read_activities(const Connection& connection, int64_t trace_id) {
  TRIPTYCH_TRY(
      Statement select,
      connection.prepare("SELECT kind.text, name.text, device_id, stream_id, start_ns, end_ns, "
                         "correlation_id, bytes FROM activity "
                         "JOIN name AS kind ON kind.name_id = activity.kind_id "
                         "JOIN name ON name.name_id = activity.name_id "
                         "WHERE trace_id = ? ORDER BY ordinal"));
  select.bind(1, trace_id);
  std::vector<ActivityRow> rows;
  while (true) {
    TRIPTYCH_TRY(const bool more, select.step());
    if (!more) return rows;
    rows.push_back({.kind = select.text_at(0),
                    .name = select.text_at(1),
                    .device_id = static_cast<int32_t>(select.int64_at(2)),
                    .stream_id = static_cast<int32_t>(select.int64_at(3)),
                    .start_ns = select.int64_at(4),
                    .end_ns = select.int64_at(5),
                    .correlation_id = select.int64_at(6),
                    .bytes = select.int64_at(7)});
  }
}

// What a query may do: read tables and views, call functions, and ask pragmas that only inform.
// sqlite3_stmt_readonly() alone would let ATTACH create a file and PRAGMA change the connection.
int authorize_reading(void*, int action, const char* first, const char* second, const char*,
                      const char*) {
  constexpr std::array<std::string_view, 10> kInforming = {
      "table_info",  "table_xinfo",      "table_list",    "index_list",    "index_info",
      "index_xinfo", "foreign_key_list", "function_list", "database_list", "pragma_list"};
  constexpr std::array<std::string_view, 7> kInformingWithoutValue = {
      "user_version", "application_id", "schema_version", "page_count",
      "page_size",    "freelist_count", "encoding"};
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_FUNCTION:
      return SQLITE_OK;
    case SQLITE_UPDATE:  // json_each() and its like declare themselves this way, writing nothing
      return std::string_view(first) == "sqlite_master" ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_PRAGMA: {
      const bool informs = std::ranges::find(kInforming, first) != kInforming.end() ||
                           (second == nullptr && std::ranges::find(kInformingWithoutValue, first) !=
                                                     kInformingWithoutValue.end());
      return informs ? SQLITE_OK : SQLITE_DENY;
    }
    default:
      return SQLITE_DENY;
  }
}

/// Holds the authorizer for as long as a query is prepared and stepped (a step may prepare again).
class ReadingOnly {
 public:
  explicit ReadingOnly(sqlite3* handle) : handle_(handle) {
    sqlite3_set_authorizer(handle_, authorize_reading, nullptr);
  }
  ReadingOnly(const ReadingOnly&) = delete;
  ReadingOnly& operator=(const ReadingOnly&) = delete;
  ~ReadingOnly() { sqlite3_set_authorizer(handle_, nullptr, nullptr); }

 private:
  sqlite3* handle_;
};

// The shortest text that reads back as the same double; SQLite's own rendering has 15 digits.
std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

Store::Table empty_table(const Statement& statement) {
  Store::Table table;
  for (int i = 0; i < statement.column_count(); ++i) {
    table.columns.push_back(statement.column_name(i));
  }
  table.numeric.assign(table.columns.size(), true);
  return table;
}

void append_row(const Statement& statement, Store::Table& table) {
  auto& row = table.rows.emplace_back();
  for (int i = 0; i < statement.column_count(); ++i) {
    if (statement.is_null(i)) {
      row.emplace_back(std::nullopt);
      continue;
    }
    const bool real = statement.is_real(i);
    // An infinity is no number in JSON.
    const bool number = statement.is_number(i) && (!real || std::isfinite(statement.double_at(i)));
    if (!number) table.numeric[static_cast<size_t>(i)] = false;
    row.emplace_back(real ? shortest(statement.double_at(i)) : statement.text_at(i));
  }
}

}  // namespace

Result<std::vector<RunRow>> Store::runs(std::string_view experiment) const {
  TRIPTYCH_TRY(Statement select, connection_.prepare("SELECT " + columns_of<RunRow>() +
                                                     " FROM run WHERE ?1 = '' OR experiment = ?1 "
                                                     "ORDER BY run_id DESC"));
  select.bind(1, experiment);
  return read_rows<RunRow>(select);
}

Result<std::vector<CellRow>> Store::cells(int64_t run_id) const {
  return select_rows<CellRow>(connection_, "WHERE run_id = ? ORDER BY cell_id", run_id);
}

Result<std::vector<CellFactsRow>> Store::facts(int64_t run_id) const {
  return select_rows<CellFactsRow>(
      connection_, "JOIN cell USING (cell_id) WHERE cell.run_id = ? ORDER BY cell_id", run_id);
}

Result<std::vector<BlockRow>> Store::blocks(int64_t cell_id) const {
  TRIPTYCH_TRY(
      std::vector<BlockRow> blocks,
      select_rows<BlockRow>(connection_, "WHERE cell_id = ? ORDER BY block_index", cell_id));
  TRIPTYCH_TRY(Statement select,
               connection_.prepare("SELECT " + columns_of<RequestRow>() +
                                   " FROM request WHERE block_id = (SELECT block_id FROM block "
                                   "WHERE cell_id = ? AND block_index = ?) "
                                   "ORDER BY request_index"));
  for (BlockRow& block : blocks) {
    select.bind(1, cell_id).bind(2, block.block_index);
    TRIPTYCH_TRY(block.requests, read_rows<RequestRow>(select));
    select.reset();
  }
  return blocks;
}

Result<std::optional<TraceRow>> Store::trace(int64_t cell_id) const {
  TRIPTYCH_TRY(Statement select, connection_.prepare("SELECT trace_id, " + columns_of<TraceRow>() +
                                                     " FROM trace WHERE cell_id = ? "
                                                     "ORDER BY trace_id DESC LIMIT 1"));
  select.bind(1, cell_id);
  TRIPTYCH_TRY(const bool found, select.step());
  if (!found) return std::optional<TraceRow>();
  const int64_t trace_id = select.int64_at(0);
  TRIPTYCH_TRY(TraceRow trace, read_row<TraceRow>(select, 1));
  TRIPTYCH_TRY(trace.phases,
               select_rows<PhaseRow>(connection_, "WHERE trace_id = ? ORDER BY ordinal", trace_id));
  TRIPTYCH_TRY(trace.token_times,
               select_rows<TokenTimeRow>(connection_,
                                         "JOIN time_class ON time_class.name = time_class "
                                         "WHERE trace_id = ? "
                                         "ORDER BY device_id, time_class.ordinal",
                                         trace_id));
  TRIPTYCH_TRY(trace.activities, read_activities(connection_, trace_id));
  return std::optional<TraceRow>(std::move(trace));
}

// v_token_time has the newest trace of an experiment, but a report may be about an older run. One
// query for all cells, because a report must not slow down with their number.
Result<std::vector<CellTimeRow>> Store::cell_times(int64_t run_id) const {
  TRIPTYCH_TRY(
      Statement select,
      connection_.prepare("SELECT trace.cell_id, trace.window_ns, trace.tokens, "
                          "token_time.device_id, time_class.name, time_class.class_group, "
                          "token_time.ns "
                          "FROM trace JOIN token_time USING (trace_id) "
                          "JOIN time_class ON time_class.name = token_time.time_class "
                          "WHERE trace.trace_id IN (SELECT max(trace_id) FROM trace JOIN cell "
                          "USING (cell_id) WHERE cell.run_id = ? GROUP BY cell_id) "
                          "ORDER BY trace.cell_id, token_time.device_id, time_class.ordinal"));
  select.bind(1, run_id);
  return read_rows<CellTimeRow>(select);
}

Result<std::vector<ServingRow>> Store::serving(int64_t run_id) const {
  return select_rows<ServingRow>(connection_, "WHERE run_id = ? ORDER BY cell_id", run_id);
}

Result<std::vector<LatencyRow>> Store::latencies(int64_t run_id) const {
  return select_rows<LatencyRow>(connection_, "WHERE run_id = ? ORDER BY cell_id", run_id);
}

Result<std::vector<SummaryRow>> Store::summaries(int64_t run_id) const {
  return select_rows<SummaryRow>(
      connection_, "JOIN cell USING (cell_id) WHERE cell.run_id = ? ORDER BY cell_id, metric",
      run_id);
}

Result<std::vector<DecompositionRow>> Store::decompositions(int64_t run_id) const {
  return select_rows<DecompositionRow>(
      connection_, "WHERE run_id = ? ORDER BY comparison, decomposition, method, ordinal", run_id);
}

Result<std::vector<ThreatRow>> Store::threats(int64_t run_id) const {
  return select_rows<ThreatRow>(connection_, "WHERE run_id = ? ORDER BY threat_id", run_id);
}

Result<Store::Table> Store::query(std::string_view sql) const {
  const ReadingOnly guard(connection_.handle());
  Result<Statement> prepared = connection_.prepare(sql);
  const bool refused = sqlite3_errcode(connection_.handle()) == SQLITE_AUTH;
  if (refused || (prepared && !prepared->only_reads())) {  // VACUUM asks no authorizer
    return fail(ErrorCode::kInvalidArgument, "a query may only read");
  }
  TRIPTYCH_TRY(Statement statement, std::move(prepared));
  Table table = empty_table(statement);
  while (true) {
    TRIPTYCH_TRY(const bool more, statement.step());
    if (!more) break;
    append_row(statement, table);
  }
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const bool has_value =
        std::ranges::any_of(table.rows, [i](const auto& row) { return row[i].has_value(); });
    if (!has_value) table.numeric[i] = false;
  }
  return table;
}

bool Store::is_copy() const {
  const char* path = sqlite3_db_filename(connection_.handle(), "main");
  return path == nullptr || *path == '\0';
}

Result<std::vector<std::string>> Store::view_names() const {
  TRIPTYCH_TRY(
      Statement select,
      connection_.prepare("SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name"));
  std::vector<std::string> names;
  while (true) {
    TRIPTYCH_TRY(const bool more, select.step());
    if (!more) return names;
    names.push_back(select.text_at(0));
  }
}

}  // namespace triptych::db
