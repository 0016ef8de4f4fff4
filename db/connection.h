// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Connection, Statement, Transaction: SQLite with ownership and Results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/handle.h"
#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;
extern "C" {
int sqlite3_close_v2(sqlite3*);
int sqlite3_finalize(sqlite3_stmt*);
}

namespace triptych::db {

enum class OpenMode : uint8_t { kReadOnly, kReadWrite };

/// How long a statement waits for a lock of another process before it gives kBusy.
inline constexpr int kBusyTimeoutMs = 5000;

class Connection;

/// A prepared statement. Parameters count from 1, columns from 0.
class Statement {
 public:
  Statement& bind(int index, int64_t value);
  Statement& bind(int index, double value);  ///< An infinite or NaN value is stored as NULL.
  Statement& bind(int index, std::string_view value);
  Statement& bind(int index, std::nullopt_t);
  template <class T>
  Statement& bind(int index, const std::optional<T>& value) {
    return value ? bind(index, *value) : bind(index, std::nullopt);
  }
  /// True when a row is there, false at the end. Errors: kBusy, kReadOnly, kIo, kInvalidArgument.
  [[nodiscard]] Result<bool> step();
  /// step() that expects no row, then reset(), so that the statement can be bound again.
  [[nodiscard]] Status execute();
  void reset();

  [[nodiscard]] int64_t int64_at(int column) const;
  [[nodiscard]] double double_at(int column) const;
  [[nodiscard]] std::string text_at(int column) const;
  [[nodiscard]] bool is_null(int column) const;
  [[nodiscard]] bool is_number(int column) const;
  [[nodiscard]] bool is_real(int column) const;  ///< A number stored as floating point.
  [[nodiscard]] int column_count() const;
  [[nodiscard]] std::string column_name(int column) const;
  [[nodiscard]] bool only_reads() const;  ///< It changes no database file.

 private:
  friend class Connection;
  explicit Statement(sqlite3_stmt* handle) : handle_(handle) {}
  UniqueHandle<sqlite3_stmt*, sqlite3_finalize> handle_;
};

class Connection {
 public:
  /// Opens (kReadWrite: or creates) a database; ":memory:" is a private one. Sets foreign_keys and
  /// the busy timeout and reads the header, but writes nothing. A read-only open in a folder that
  /// cannot be written works as long as no write-ahead log waits to be merged.
  /// Errors, with `where` = path: kNotFound (folder; file when read-only), kReadOnly, kCorrupt (not
  /// a database), kBusy, kInvalidArgument (a folder), kIo.
  [[nodiscard]] static Result<Connection> open(const std::filesystem::path& path, OpenMode mode,
                                               int busy_timeout_ms = kBusyTimeoutMs);
  /// Errors: kInvalidArgument with SQLite's message; also when `sql` is not exactly one statement.
  [[nodiscard]] Result<Statement> prepare(std::string_view sql) const;
  /// Runs statements separated by ';' and drops their rows.
  [[nodiscard]] Status execute(std::string_view sql) const;
  /// A private copy that can be written; this database stays as it is. Errors: kBusy, kIo,
  /// kOutOfMemory.
  [[nodiscard]] Result<Connection> copy_in_memory() const;
  [[nodiscard]] int64_t last_insert_rowid() const;
  [[nodiscard]] sqlite3* handle() const { return handle_.get(); }

 private:
  explicit Connection(sqlite3* handle) : handle_(handle) {}
  UniqueHandle<sqlite3*, sqlite3_close_v2> handle_;
};

/// BEGIN IMMEDIATE on begin(); rolls back in the destructor unless commit() succeeded.
class Transaction {
 public:
  [[nodiscard]] static Result<Transaction> begin(const Connection& connection);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  [[nodiscard]] Status commit();

 private:
  explicit Transaction(const Connection& connection) : connection_(&connection) {}
  const Connection* connection_ = nullptr;
};

}  // namespace triptych::db
