// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "db/migrate.h"

#include <sqlite3.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "db/migrations/0002_serving.sql.h"
#include "db/migrations/0003_device_wait.sql.h"
#include "db/migrations/0004_host_work.sql.h"
#include "db/migrations/0005_interrupted.sql.h"
#include "db/schema.sql.h"
#include "db/views/v_blocks.sql.h"
#include "db/views/v_decomposition.sql.h"
#include "db/views/v_device_time.sql.h"
#include "db/views/v_history.sql.h"
#include "db/views/v_latency.sql.h"
#include "db/views/v_requests.sql.h"
#include "db/views/v_runs.sql.h"
#include "db/views/v_serving.sql.h"
#include "db/views/v_stack_summary.sql.h"
#include "db/views/v_threats.sql.h"
#include "db/views/v_token_time.sql.h"

namespace triptych::db {

namespace {

constexpr std::array kViews = {
    View{"v_blocks", kVBlocksSql},
    View{"v_decomposition", kVDecompositionSql},
    View{"v_device_time", kVDeviceTimeSql},
    View{"v_history", kVHistorySql},
    View{"v_latency", kVLatencySql},
    View{"v_requests", kVRequestsSql},
    View{"v_runs", kVRunsSql},
    View{"v_serving", kVServingSql},
    View{"v_stack_summary", kVStackSummarySql},
    View{"v_threats", kVThreatsSql},
    View{"v_token_time", kVTokenTimeSql},
};

// From version 2 on; version 1 is the first there is.
constexpr std::array kMigrations = {Migration{2, k0002ServingSql}, Migration{3, k0003DeviceWaitSql},
                                    Migration{4, k0004HostWorkSql},
                                    Migration{5, k0005InterruptedSql}};

std::string path_of(const Connection& connection) {
  const char* path = sqlite3_db_filename(connection.handle(), "main");
  return path == nullptr ? "" : path;
}

Unexpected too_new(int64_t version, std::string where) {
  return fail(ErrorCode::kSchemaTooNew,
              "schema version " + std::to_string(version) +
                  " was written by a newer Triptych; this one knows versions up to " +
                  std::to_string(kSchemaVersion),
              std::move(where));
}

Unexpected foreign(std::string where) {
  return fail(ErrorCode::kCorrupt, "a SQLite database, but not one of Triptych", std::move(where));
}

Result<std::string> read_text(const Connection& connection, std::string_view sql) {
  TRIPTYCH_TRY(Statement statement, connection.prepare(sql));
  TRIPTYCH_TRY(const bool row, statement.step());
  return row ? statement.text_at(0) : std::string();
}

Result<int64_t> read_int(const Connection& connection, std::string_view sql) {
  TRIPTYCH_TRY(Statement statement, connection.prepare(sql));
  TRIPTYCH_TRY(const bool row, statement.step());
  return row ? statement.int64_at(0) : 0;
}

enum class Found : uint8_t { kEmpty, kTriptych };

struct Identity {
  Found found = Found::kEmpty;
  int64_t version = 0;
};

Result<Identity> identify(const Connection& connection) {
  // One statement, so that all three come from one snapshot.
  TRIPTYCH_TRY(Statement statement,
               connection.prepare("SELECT application_id, user_version, "
                                  "(SELECT count(*) FROM sqlite_schema) "
                                  "FROM pragma_application_id, pragma_user_version"));
  TRIPTYCH_TRY(const bool row, statement.step());
  TRIPTYCH_CHECK(row, "pragma functions give one row each");
  const int64_t id = statement.int64_at(0);
  const int64_t version = statement.int64_at(1);
  const int64_t objects = statement.int64_at(2);
  if (id == 0 && version == 0 && objects == 0) return Identity{};
  if (id != kApplicationId || version < 1 || objects == 0) return foreign(path_of(connection));
  if (version > kSchemaVersion) return too_new(version, path_of(connection));
  return Identity{Found::kTriptych, version};
}

// The statement as SQLite keeps it in sqlite_schema: from CREATE to before the last ';'.
std::string_view view_statement(const View& view) {
  const size_t begin = view.sql.find("CREATE VIEW " + std::string(view.name) + " ");
  const size_t end = view.sql.rfind(';');
  TRIPTYCH_CHECK(begin != std::string_view::npos && end != std::string_view::npos, view.name);
  return view.sql.substr(begin, end - begin);
}

Result<bool> view_is_current(const Connection& connection, const View& view) {
  TRIPTYCH_TRY(
      Statement statement,
      connection.prepare("SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = ?"));
  statement.bind(1, view.name);
  TRIPTYCH_TRY(const bool row, statement.step());
  return row && statement.text_at(0) == view_statement(view);
}

Status write_views(const Connection& connection) {
  for (const View& view : kViews) {
    TRIPTYCH_RETURN_IF_ERROR(connection.execute("DROP VIEW IF EXISTS " + std::string(view.name)));
    TRIPTYCH_RETURN_IF_ERROR(connection.execute(view_statement(view)));
  }
  return {};
}

Status refresh_views(const Connection& connection) {
  bool current = true;
  for (const View& view : kViews) {
    TRIPTYCH_TRY(const bool same, view_is_current(connection, view));
    current = current && same;
  }
  if (current) return {};  // no write lock where there is nothing to write
  TRIPTYCH_TRY(Transaction transaction, Transaction::begin(connection));
  TRIPTYCH_RETURN_IF_ERROR(write_views(connection));
  return transaction.commit();
}

Status create(const Connection& connection) {
  TRIPTYCH_TRY(Transaction transaction, Transaction::begin(connection));
  // Another process may have created it between our look and our lock.
  TRIPTYCH_TRY(const Identity identity, identify(connection));
  if (identity.found != Found::kEmpty) return {};
  TRIPTYCH_RETURN_IF_ERROR(connection.execute(kSchemaSql));
  TRIPTYCH_RETURN_IF_ERROR(write_views(connection));
  return transaction.commit();
}

// Readers then never wait for the writer. Done after creation, so that the header in the file
// itself, not only the log, carries the identity that check_header() looks for. SQLite keeps its
// rollback journal where the file system has no shared memory; that is safe too, but needs the
// full synchronous mode.
Status use_write_ahead_log(const Connection& connection) {
  TRIPTYCH_TRY(std::string mode, read_text(connection, "PRAGMA journal_mode"));
  // SQLite asks no busy handler for this change, so that two processes that open a new database at
  // once would fail; one of them makes the change, and the others then find it made.
  constexpr int kAttempts = 200;
  for (int attempt = 1; mode != "wal" && mode != "memory"; ++attempt) {
    Result<std::string> changed = read_text(connection, "PRAGMA journal_mode = WAL");
    if (changed) {
      mode = *changed;
      break;
    }
    if (changed.error().code != ErrorCode::kBusy || attempt == kAttempts) {
      return Unexpected{changed.error()};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // With the log, NORMAL syncs at checkpoints only: what a killed process has committed was handed
  // to the kernel by write() and stays; only a power cut can lose the last transactions.
  return mode == "wal" ? connection.execute("PRAGMA synchronous = NORMAL") : Status();
}

}  // namespace

std::span<const View> views() { return kViews; }

Status check_header(const std::filesystem::path& path) {
  // Offsets of the SQLite file format: user_version at 60, application_id at 68, big-endian.
  std::array<char, 100> header{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(header.data(), header.size())) return {};  // missing or short: SQLite will tell
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail(ErrorCode::kCorrupt, "not a SQLite database", path.string());
  }
  const auto word = [&header](size_t offset) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) {
      value = value << 8 | static_cast<unsigned char>(header[offset + i]);
    }
    return static_cast<int64_t>(value);
  };
  if (word(68) == kApplicationId && word(60) > kSchemaVersion) {
    return too_new(word(60), path.string());
  }
  if (word(68) != kApplicationId && word(68) != 0) return foreign(path.string());
  return {};
}

Result<bool> is_older(const Connection& connection) {
  TRIPTYCH_TRY(const Identity identity, identify(connection));
  return identity.found == Found::kTriptych && identity.version < kSchemaVersion;
}

Status upgrade(const Connection& connection, int64_t version, std::span<const Migration> steps) {
  for (const Migration& step : steps) {
    if (step.to <= version) continue;
    TRIPTYCH_TRY(Transaction transaction, Transaction::begin(connection));
    // The version is read again under the lock: another process may have come first.
    TRIPTYCH_TRY(const int64_t now, read_int(connection, "PRAGMA user_version"));
    if (now >= step.to) continue;
    TRIPTYCH_RETURN_IF_ERROR(connection.execute(step.sql));
    TRIPTYCH_RETURN_IF_ERROR(
        connection.execute("PRAGMA user_version = " + std::to_string(step.to)));
    TRIPTYCH_RETURN_IF_ERROR(transaction.commit());
  }
  return {};
}

Status migrate(const Connection& connection, OpenMode mode) {
  TRIPTYCH_TRY(Identity identity, identify(connection));
  if (mode == OpenMode::kReadOnly) {
    if (identity.found == Found::kEmpty) {
      return fail(ErrorCode::kCorrupt, "an empty file, not a database of Triptych",
                  path_of(connection));
    }
    if (identity.version == kSchemaVersion) return {};
    return fail(ErrorCode::kUnsupported,
                "schema version " + std::to_string(identity.version) + ", this Triptych reads " +
                    std::to_string(kSchemaVersion),
                path_of(connection));
  }
  if (identity.found == Found::kEmpty) {
    TRIPTYCH_RETURN_IF_ERROR(create(connection));
    TRIPTYCH_TRY(identity, identify(connection));
  }
  TRIPTYCH_RETURN_IF_ERROR(use_write_ahead_log(connection));
  TRIPTYCH_RETURN_IF_ERROR(upgrade(connection, identity.version, kMigrations));
  return refresh_views(connection);
}

}  // namespace triptych::db
