// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Store: the results database. All SQL of the program lives behind it and in db/*.sql.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "db/connection.h"
#include "db/rows.h"

namespace triptych::db {

/// Rows are only ever added; the exceptions are the status of a run and of a cell, and its facts.
/// A committed transaction survives kill -9: it is in the write-ahead log, which the next open
/// reads. A power cut may take the last transactions (the log is not synced at each commit, so that
/// storing a block costs no disk flush beside a measurement), but never the integrity of the file.
class Store {
 public:
  /// Opens or creates. Errors: kBusy (locked after the timeout), kReadOnly, kSchemaTooNew, kCorrupt
  /// (not a Triptych database), kNotFound (missing folder; read-only open of a missing file). A
  /// database that is refused is not changed. One of an older schema is migrated; when it is opened
  /// for reading that happens to a copy in memory, and the file stays as it is.
  [[nodiscard]] static Result<Store> open(const std::filesystem::path& path, OpenMode mode,
                                          int busy_timeout_ms = kBusyTimeoutMs);

  /// Inserts the run and its planned cells in one transaction; sets run_id and cell_id in place.
  [[nodiscard]] Status insert_run(RunRow& run, std::span<CellRow> cells);
  [[nodiscard]] Status finish_run(int64_t run_id, std::string_view status,
                                  std::string_view finished_utc);
  /// Every run that is "running" is also interrupted. Only while its lock says that no program
  /// measures into this database.
  [[nodiscard]] Status mark_interrupted();
  /// A run that was interrupted goes on.
  [[nodiscard]] Status set_running(int64_t run_id);
  [[nodiscard]] Status set_ceilings(int64_t run_id, double read_bytes_per_s,
                                    double f32_flops_per_s);
  [[nodiscard]] Status set_cell_status(int64_t cell_id, std::string_view status,
                                       std::string_view reason);
  /// Replaces the facts of an earlier, killed attempt at the same cell.
  [[nodiscard]] Status insert_facts(const CellFactsRow& facts);

  /// One block of a comparison: all its cells or none, in one transaction.
  [[nodiscard]] Status insert_block(std::span<const BlockRow> cells);
  /// Errors: kInvalidArgument if the time classes do not sum to window_ns.
  [[nodiscard]] Status insert_trace(const TraceRow& trace);
  /// Ends a comparison in one transaction: summaries, decompositions, threats, cells set to "done".
  [[nodiscard]] Status insert_results(std::span<const SummaryRow> summaries,
                                      std::span<const DecompositionRow> decompositions,
                                      std::span<const ThreatRow> threats,
                                      std::span<const int64_t> done_cells);

  /// Runs of an experiment ("" = all), newest first.
  [[nodiscard]] Result<std::vector<RunRow>> runs(std::string_view experiment) const;
  [[nodiscard]] Result<std::vector<CellRow>> cells(int64_t run_id) const;
  [[nodiscard]] Result<std::vector<CellFactsRow>> facts(int64_t run_id) const;
  /// Blocks with their requests, ordered by block_index.
  [[nodiscard]] Result<std::vector<BlockRow>> blocks(int64_t cell_id) const;
  /// The newest trace of a cell, if it has one.
  [[nodiscard]] Result<std::optional<TraceRow>> trace(int64_t cell_id) const;
  /// Times of the newest traces of a run's cells, by cell, device and class.
  [[nodiscard]] Result<std::vector<CellTimeRow>> cell_times(int64_t run_id) const;
  /// v_serving and v_latency of a run.
  [[nodiscard]] Result<std::vector<ServingRow>> serving(int64_t run_id) const;
  [[nodiscard]] Result<std::vector<LatencyRow>> latencies(int64_t run_id) const;
  [[nodiscard]] Result<std::vector<SummaryRow>> summaries(int64_t run_id) const;
  [[nodiscard]] Result<std::vector<DecompositionRow>> decompositions(int64_t run_id) const;
  [[nodiscard]] Result<std::vector<ThreatRow>> threats(int64_t run_id) const;

  /// A read-only query; every value as text, NULL as nullopt. Errors: kInvalidArgument with
  /// SQLite's message; anything that would write is refused.
  struct Table {
    std::vector<std::string> columns;
    std::vector<std::vector<std::optional<std::string>>> rows;
    std::vector<bool> numeric;  ///< Column holds numbers only (for alignment and JSON).
  };
  [[nodiscard]] Result<Table> query(std::string_view sql) const;
  /// Whether reads are of a copy in memory, because the file has an older schema.
  [[nodiscard]] bool is_copy() const;
  /// Names of the views, the stable interface: v_stack_summary, v_decomposition, ...
  [[nodiscard]] Result<std::vector<std::string>> view_names() const;

 private:
  explicit Store(Connection connection);
  Connection connection_;
};

}  // namespace triptych::db
