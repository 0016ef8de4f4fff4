// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Brings a database to the current schema and views, or says why it cannot.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"
#include "db/connection.h"

namespace triptych::db {

inline constexpr int64_t kSchemaVersion = 5;           ///< PRAGMA user_version of schema.sql.
inline constexpr int64_t kApplicationId = 0x54726970;  ///< PRAGMA application_id: "Trip".

/// Statements that lead from version `to - 1` to version `to`.
struct Migration {
  int64_t to = 0;
  std::string_view sql;
};
struct View {
  std::string_view name;
  std::string_view sql;  ///< Whole file; the statement begins at CREATE VIEW.
};
[[nodiscard]] std::span<const View> views();

/// Refuses, by its first 100 bytes and without opening it, a file of a newer schema or of another
/// program. A missing or empty file passes. Errors: kSchemaTooNew, kCorrupt.
[[nodiscard]] Status check_header(const std::filesystem::path& path);

/// Whether the database is one of Triptych with a schema before kSchemaVersion.
/// Errors: kSchemaTooNew, kCorrupt (another program's database).
[[nodiscard]] Result<bool> is_older(const Connection& connection);

/// Creates the schema in an empty database, applies the migrations that an older one lacks, and
/// replaces views whose text differs; kReadOnly changes nothing and accepts the current version
/// only. Errors: kSchemaTooNew, kCorrupt (another program's database), kUnsupported (older schema,
/// read-only), kBusy, kReadOnly.
[[nodiscard]] Status migrate(const Connection& connection, OpenMode mode);

/// Applies those of `steps` above `version` in one transaction each. Exposed for tests.
[[nodiscard]] Status upgrade(const Connection& connection, int64_t version,
                             std::span<const Migration> steps);

}  // namespace triptych::db
