// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "db/connection.h"

#include <sqlite3.h>

#include <cmath>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "db/sqlite_error.h"

namespace triptych::db {

namespace {

namespace fs = std::filesystem;

// Faults that SQLite would report as "unable to open database file" or hide by making a file.
Status check_place(const fs::path& path, OpenMode mode) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return fail(ErrorCode::kCorrupt, "is a folder, expected a database file", path.string());
  }
  const fs::path folder = path.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    return fail(ErrorCode::kNotFound, "the folder " + folder.string() + " does not exist",
                path.string());
  }
  if (mode == OpenMode::kReadOnly && !fs::exists(path, ignored)) {
    return fail(ErrorCode::kNotFound, "no such database", path.string());
  }
  return {};
}

std::string immutable_uri(const fs::path& absolute) {
  std::string uri = "file:";
  for (const char c : absolute.string()) {
    if (c == '%' || c == '?' || c == '#') {
      uri += str_format("%%%02x", static_cast<unsigned>(c));
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

// An immutable open ignores the log, so it would show an old state where a log waits.
bool has_waiting_log(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path.string() + "-wal", error);
  return !error && size > 0;
}

// Reads the header, which is when SQLite finds out what kind of file it has.
int touch(sqlite3* handle) {
  return sqlite3_exec(handle, "PRAGMA schema_version", nullptr, nullptr, nullptr);
}

}  // namespace

Result<Connection> Connection::open(const fs::path& path, OpenMode mode, int busy_timeout_ms) {
  const bool in_memory = path == ":memory:";
  // Absolute, so that neither "file:x" (a URI to SQLite) nor a later chdir changes its meaning.
  std::error_code no_folder;  // an empty path, or a working directory that was deleted
  const std::string name = in_memory ? path.string() : fs::absolute(path, no_folder).string();
  if (path.empty() || no_folder) {
    return fail(ErrorCode::kInvalidArgument,
                "\"" + path.string() + "\" is no path to a database, expected the name of a file");
  }
  if (!in_memory) TRIPTYCH_RETURN_IF_ERROR(check_place(path, mode));

  const int flags = mode == OpenMode::kReadOnly && !in_memory
                        ? SQLITE_OPEN_READONLY
                        : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const auto try_open = [busy_timeout_ms](const std::string& file, int open_flags) {
    sqlite3* raw = nullptr;
    int rc = sqlite3_open_v2(file.c_str(), &raw, open_flags, nullptr);
    Connection connection(raw);  // SQLite gives a handle with the message even when it fails
    if (rc == SQLITE_OK) {
      sqlite3_extended_result_codes(raw, 1);
      sqlite3_busy_timeout(raw, busy_timeout_ms);
      rc = touch(raw);
    }
    return std::pair{rc, std::move(connection)};
  };

  auto [rc, connection] = try_open(name, flags);
  if (rc != SQLITE_OK) {
    const Unexpected failure = sqlite_failure(connection.handle(), path);
    if (mode != OpenMode::kReadOnly || failure.error.code != ErrorCode::kReadOnly) return failure;
    if (has_waiting_log(path)) {
      return fail(ErrorCode::kReadOnly,
                  "the folder cannot be written and a write-ahead log (-wal) waits to be merged; "
                  "copy both files to a folder that can be written",
                  path.string());
    }
    std::tie(rc, connection) = try_open(immutable_uri(name), flags | SQLITE_OPEN_URI);
    if (rc != SQLITE_OK) return sqlite_failure(connection.handle(), path);
  }
  if (mode == OpenMode::kReadWrite && sqlite3_db_readonly(connection.handle(), "main") == 1) {
    return fail(ErrorCode::kReadOnly, "the file cannot be written", path.string());
  }
  TRIPTYCH_RETURN_IF_ERROR(connection.execute("PRAGMA foreign_keys = ON"));
  return std::move(connection);
}

Result<Connection> Connection::copy_in_memory() const {
  TRIPTYCH_TRY(Connection copy, open(":memory:", OpenMode::kReadWrite));
  sqlite3_backup* backup = sqlite3_backup_init(copy.handle(), "main", handle(), "main");
  if (backup == nullptr) return sqlite_failure(copy.handle());
  sqlite3_backup_step(backup, -1);  // all pages at once; finish() gives its error
  if (sqlite3_backup_finish(backup) != SQLITE_OK) return sqlite_failure(copy.handle());
  return copy;
}

Result<Statement> Connection::prepare(std::string_view sql) const {
  sqlite3_stmt* raw = nullptr;
  const char* tail = nullptr;
  if (sqlite3_prepare_v2(handle(), sql.data(), static_cast<int>(sql.size()), &raw, &tail) !=
      SQLITE_OK) {
    return sqlite_failure(handle());
  }
  Statement statement(raw);
  if (raw == nullptr) return fail(ErrorCode::kInvalidArgument, "no SQL statement given");
  // What follows may be blanks and comments: SQLite then prepares nothing.
  sqlite3_stmt* second = nullptr;
  const std::string_view rest = sql.substr(static_cast<size_t>(tail - sql.data()));
  const int rc =
      sqlite3_prepare_v2(handle(), rest.data(), static_cast<int>(rest.size()), &second, nullptr);
  const Statement dropped(second);
  if (rc != SQLITE_OK || second != nullptr) {
    return fail(ErrorCode::kInvalidArgument, "expected one SQL statement, found more");
  }
  return statement;
}

Status Connection::execute(std::string_view sql) const {
  if (sqlite3_exec(handle(), std::string(sql).c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return sqlite_failure(handle());
  }
  return {};
}

int64_t Connection::last_insert_rowid() const { return sqlite3_last_insert_rowid(handle()); }

Statement& Statement::bind(int index, int64_t value) {
  TRIPTYCH_CHECK(sqlite3_bind_int64(handle_.get(), index, value) == SQLITE_OK, "bad parameter");
  return *this;
}

Statement& Statement::bind(int index, double value) {
  if (!std::isfinite(value)) return bind(index, std::nullopt);
  TRIPTYCH_CHECK(sqlite3_bind_double(handle_.get(), index, value) == SQLITE_OK, "bad parameter");
  return *this;
}

Statement& Statement::bind(int index, std::string_view value) {
  // A null pointer would bind NULL, and an empty view may have one.
  const char* data = value.data() == nullptr ? "" : value.data();
  TRIPTYCH_CHECK(sqlite3_bind_text64(handle_.get(), index, data, value.size(), SQLITE_TRANSIENT,
                                     SQLITE_UTF8) == SQLITE_OK,
                 "bad parameter, or a text beyond the limit of SQLite");
  return *this;
}

Statement& Statement::bind(int index, std::nullopt_t) {
  TRIPTYCH_CHECK(sqlite3_bind_null(handle_.get(), index) == SQLITE_OK, "bad parameter");
  return *this;
}

Result<bool> Statement::step() {
  const int rc = sqlite3_step(handle_.get());
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  return sqlite_failure(sqlite3_db_handle(handle_.get()));
}

Status Statement::execute() {
  Result<bool> row = step();
  if (!row) {
    const Error error = row.error();  // reset() repeats the code of the failed step
    reset();
    return Unexpected{error};
  }
  TRIPTYCH_CHECK(!*row, "execute() on a statement that gives rows");
  reset();
  return {};
}

void Statement::reset() { sqlite3_reset(handle_.get()); }

int64_t Statement::int64_at(int column) const {
  return sqlite3_column_int64(handle_.get(), column);
}

double Statement::double_at(int column) const {
  return sqlite3_column_double(handle_.get(), column);
}

std::string Statement::text_at(int column) const {
  // The order matters: the length is that of the text that the first call made.
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(handle_.get(), column));
  const auto size = static_cast<size_t>(sqlite3_column_bytes(handle_.get(), column));
  return text == nullptr ? std::string() : std::string(text, size);
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL;
}

bool Statement::is_number(int column) const {
  const int type = sqlite3_column_type(handle_.get(), column);
  return type == SQLITE_INTEGER || type == SQLITE_FLOAT;
}

bool Statement::is_real(int column) const {
  return sqlite3_column_type(handle_.get(), column) == SQLITE_FLOAT;
}

bool Statement::only_reads() const { return sqlite3_stmt_readonly(handle_.get()) != 0; }

int Statement::column_count() const { return sqlite3_column_count(handle_.get()); }

std::string Statement::column_name(int column) const {
  return sqlite3_column_name(handle_.get(), column);
}

Result<Transaction> Transaction::begin(const Connection& connection) {
  // IMMEDIATE takes the write lock now, so that a busy database is found before any work.
  TRIPTYCH_RETURN_IF_ERROR(connection.execute("BEGIN IMMEDIATE"));
  return Transaction(connection);
}

Transaction::Transaction(Transaction&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr)) {}

Transaction::~Transaction() {
  // A failed ROLLBACK leaves nothing to do: closing the connection rolls back as well.
  if (connection_ != nullptr) static_cast<void>(connection_->execute("ROLLBACK"));
}

Status Transaction::commit() {
  TRIPTYCH_RETURN_IF_ERROR(connection_->execute("COMMIT"));
  connection_ = nullptr;
  return {};
}

}  // namespace triptych::db
