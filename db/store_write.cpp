// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Store: opening, and everything that inserts.
#include <sqlite3.h>

#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "db/migrate.h"
#include "db/row_io.h"
#include "db/store.h"

namespace triptych::db {

namespace {

/// Runs an UPDATE that must meet exactly one row.
Status update_one(const Connection& connection, Statement& statement, std::string_view what,
                  int64_t id) {
  TRIPTYCH_RETURN_IF_ERROR(statement.execute());
  if (sqlite3_changes(connection.handle()) == 1) return {};
  return fail(ErrorCode::kNotFound, "no " + std::string(what) + " " + std::to_string(id));
}

template <class Row>
Status write_rows(const Connection& connection, std::span<const Row> rows) {
  TRIPTYCH_TRY(Statement statement, connection.prepare(insert_sql<Row>()));
  for (const Row& row : rows) TRIPTYCH_RETURN_IF_ERROR(write_row(statement, row));
  return {};
}

/// Ids of names, remembered for one transaction so that a million activities need few look-ups.
class NameIds {
 public:
  static Result<NameIds> open(const Connection& connection) {
    TRIPTYCH_TRY(Statement insert,
                 connection.prepare("INSERT INTO name (text) VALUES (?) ON CONFLICT DO NOTHING"));
    TRIPTYCH_TRY(Statement find, connection.prepare("SELECT name_id FROM name WHERE text = ?"));
    return NameIds(std::move(insert), std::move(find));
  }

  Result<int64_t> id(const std::string& text) {
    if (const auto known = ids_.find(text); known != ids_.end()) return known->second;
    TRIPTYCH_RETURN_IF_ERROR(insert_.bind(1, std::string_view(text)).execute());
    find_.bind(1, std::string_view(text));
    TRIPTYCH_TRY(const bool found, find_.step());
    TRIPTYCH_CHECK(found, "a name that was just inserted is gone");
    const int64_t name_id = find_.int64_at(0);
    find_.reset();
    ids_.emplace(text, name_id);
    return name_id;
  }

 private:
  NameIds(Statement insert, Statement find) : insert_(std::move(insert)), find_(std::move(find)) {}
  Statement insert_;
  Statement find_;
  std::unordered_map<std::string, int64_t> ids_;
};

Status write_activities(const Connection& connection, int64_t trace_id,
                        std::span<const ActivityRow> activities) {
  TRIPTYCH_TRY(NameIds names, NameIds::open(connection));
  TRIPTYCH_TRY(Statement insert,
               connection.prepare("INSERT INTO activity VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  int64_t ordinal = 0;
  for (const ActivityRow& activity : activities) {
    TRIPTYCH_TRY(const int64_t kind, names.id(activity.kind));
    TRIPTYCH_TRY(const int64_t name, names.id(activity.name));
    insert.bind(1, trace_id)
        .bind(2, ordinal++)
        .bind(3, kind)
        .bind(4, name)
        .bind(5, int64_t{activity.device_id})
        .bind(6, int64_t{activity.stream_id})
        .bind(7, activity.start_ns)
        .bind(8, activity.end_ns)
        .bind(9, activity.correlation_id)
        .bind(10, activity.bytes);
    TRIPTYCH_RETURN_IF_ERROR(insert.execute());
  }
  return {};
}

Status write_block(const Connection& connection, Statement& insert_block, Statement& insert_request,
                   const BlockRow& block) {
  TRIPTYCH_RETURN_IF_ERROR(write_row(insert_block, block));
  const int64_t block_id = connection.last_insert_rowid();
  for (const RequestRow& request : block.requests) {
    insert_request.bind(1, block_id);
    TRIPTYCH_RETURN_IF_ERROR(write_row(insert_request, request, 2));
  }
  return {};
}

Status write_decompositions(const Connection& connection, std::span<const DecompositionRow> rows) {
  TRIPTYCH_TRY(Statement insert,
               connection.prepare(insert_sql<DecompositionRow>("factor, factor_lo, factor_hi, ")));
  for (const DecompositionRow& row : rows) {
    insert.bind(1, std::exp(row.log_contribution));
    // exp(-inf) would be the finite bound 0, which says less than "no bound".
    insert.bind(2, std::isfinite(row.log_lo) ? std::exp(row.log_lo) : kInfinity);
    insert.bind(3, std::exp(row.log_hi));
    TRIPTYCH_RETURN_IF_ERROR(write_row(insert, row, 4));
  }
  return {};
}

}  // namespace

Store::Store(Connection connection) : connection_(std::move(connection)) {}

Result<Store> Store::open(const std::filesystem::path& path, OpenMode mode, int busy_timeout_ms) {
  TRIPTYCH_RETURN_IF_ERROR(check_header(path));
  TRIPTYCH_TRY(Connection connection, Connection::open(path, mode, busy_timeout_ms));
  if (mode == OpenMode::kReadOnly) {
    const Result<bool> older = is_older(connection);
    if (!older) return fail(older.error().code, older.error().message, path.string());
    if (*older) {
      TRIPTYCH_TRY(connection, connection.copy_in_memory());
      mode = OpenMode::kReadWrite;  // of the copy
    }
  }
  const Status status = migrate(connection, mode);
  if (!status) return fail(status.error().code, status.error().message, path.string());
  return Store(std::move(connection));
}

Status Store::insert_run(RunRow& run, std::span<CellRow> cells) {
  TRIPTYCH_TRY(Transaction transaction, Transaction::begin(connection_));
  TRIPTYCH_TRY(Statement insert_run, connection_.prepare(insert_sql<RunRow>()));
  TRIPTYCH_RETURN_IF_ERROR(write_row(insert_run, run));
  const int64_t run_id = connection_.last_insert_rowid();

  TRIPTYCH_TRY(Statement insert_cell, connection_.prepare(insert_sql<CellRow>()));
  std::vector<int64_t> cell_ids;
  for (CellRow& cell : cells) {
    cell.run_id = run_id;
    TRIPTYCH_RETURN_IF_ERROR(write_row(insert_cell, cell));
    cell_ids.push_back(connection_.last_insert_rowid());
  }
  TRIPTYCH_RETURN_IF_ERROR(transaction.commit());
  run.run_id = run_id;
  for (size_t i = 0; i < cells.size(); ++i) cells[i].cell_id = cell_ids[i];
  return {};
}

Status Store::finish_run(int64_t run_id, std::string_view status, std::string_view finished_utc) {
  TRIPTYCH_TRY(Statement update,
               connection_.prepare("UPDATE run SET status = ?, finished_utc = ? WHERE run_id = ?"));
  update.bind(1, status).bind(2, finished_utc).bind(3, run_id);
  return update_one(connection_, update, "run", run_id);
}

Status Store::mark_interrupted() {
  return connection_.execute(
      "UPDATE run SET interrupted = 1 WHERE status = 'running' AND interrupted = 0");
}

Status Store::set_running(int64_t run_id) {
  TRIPTYCH_TRY(Statement update,
               connection_.prepare("UPDATE run SET interrupted = 0 WHERE run_id = ?"));
  update.bind(1, run_id);
  return update_one(connection_, update, "run", run_id);
}

Status Store::set_ceilings(int64_t run_id, double read_bytes_per_s, double f32_flops_per_s) {
  TRIPTYCH_TRY(Statement update,
               connection_.prepare("UPDATE run SET read_bytes_per_s = ?, f32_flops_per_s = ? "
                                   "WHERE run_id = ?"));
  update.bind(1, read_bytes_per_s).bind(2, f32_flops_per_s).bind(3, run_id);
  return update_one(connection_, update, "run", run_id);
}

Status Store::set_cell_status(int64_t cell_id, std::string_view status, std::string_view reason) {
  TRIPTYCH_TRY(Statement update,
               connection_.prepare("UPDATE cell SET status = ?, reason = ? WHERE cell_id = ?"));
  update.bind(1, status).bind(2, reason).bind(3, cell_id);
  return update_one(connection_, update, "cell", cell_id);
}

Status Store::insert_facts(const CellFactsRow& facts) {
  TRIPTYCH_TRY(Statement insert,
               connection_.prepare(insert_sql<CellFactsRow>("", "INSERT OR REPLACE INTO ")));
  return write_row(insert, facts);
}

Status Store::insert_block(std::span<const BlockRow> cells) {
  TRIPTYCH_TRY(Transaction transaction, Transaction::begin(connection_));
  TRIPTYCH_TRY(Statement insert_block, connection_.prepare(insert_sql<BlockRow>()));
  TRIPTYCH_TRY(Statement insert_request, connection_.prepare(insert_sql<RequestRow>("block_id, ")));
  for (const BlockRow& block : cells) {
    TRIPTYCH_RETURN_IF_ERROR(write_block(connection_, insert_block, insert_request, block));
  }
  return transaction.commit();
}

Status Store::insert_trace(const TraceRow& trace) {
  int64_t total_ns = 0;
  for (const TokenTimeRow& row : trace.token_times) total_ns += row.ns;
  if (total_ns != trace.window_ns) {
    return fail(ErrorCode::kInvalidArgument,
                "the time classes of cell " + std::to_string(trace.cell_id) + " sum to " +
                    std::to_string(total_ns) + " ns, expected the window of " +
                    std::to_string(trace.window_ns) + " ns");
  }
  TRIPTYCH_TRY(Transaction transaction, Transaction::begin(connection_));
  TRIPTYCH_TRY(Statement insert, connection_.prepare(insert_sql<TraceRow>()));
  TRIPTYCH_RETURN_IF_ERROR(write_row(insert, trace));
  const int64_t trace_id = connection_.last_insert_rowid();

  TRIPTYCH_TRY(Statement insert_phase,
               connection_.prepare(insert_sql<PhaseRow>("trace_id, ordinal, ")));
  int64_t ordinal = 0;
  for (const PhaseRow& phase : trace.phases) {
    insert_phase.bind(1, trace_id).bind(2, ordinal++);
    TRIPTYCH_RETURN_IF_ERROR(write_row(insert_phase, phase, 3));
  }
  TRIPTYCH_TRY(Statement insert_time, connection_.prepare(insert_sql<TokenTimeRow>("trace_id, ")));
  for (const TokenTimeRow& row : trace.token_times) {
    insert_time.bind(1, trace_id);
    TRIPTYCH_RETURN_IF_ERROR(write_row(insert_time, row, 2));
  }
  TRIPTYCH_RETURN_IF_ERROR(write_activities(connection_, trace_id, trace.activities));
  return transaction.commit();
}

Status Store::insert_results(std::span<const SummaryRow> summaries,
                             std::span<const DecompositionRow> decompositions,
                             std::span<const ThreatRow> threats,
                             std::span<const int64_t> done_cells) {
  TRIPTYCH_TRY(Transaction transaction, Transaction::begin(connection_));
  TRIPTYCH_RETURN_IF_ERROR(write_rows(connection_, summaries));
  TRIPTYCH_RETURN_IF_ERROR(write_decompositions(connection_, decompositions));
  TRIPTYCH_RETURN_IF_ERROR(write_rows(connection_, threats));
  for (const int64_t cell_id : done_cells) {
    TRIPTYCH_RETURN_IF_ERROR(set_cell_status(cell_id, "done", ""));
  }
  return transaction.commit();
}

}  // namespace triptych::db
