// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What SQLite reports, as an Error. Private to this room.
#pragma once

#include <filesystem>

#include "base/result.h"

struct sqlite3;

namespace triptych::db {

/// True if `path` exists and this process may create files in it.
[[nodiscard]] bool folder_is_writable(const std::filesystem::path& folder);

/// The last failure on `handle`; `where` is the path of its database.
[[nodiscard]] Unexpected sqlite_failure(sqlite3* handle);
/// The same for a connection that was opened on `path`.
[[nodiscard]] Unexpected sqlite_failure(sqlite3* handle, const std::filesystem::path& path);

}  // namespace triptych::db
