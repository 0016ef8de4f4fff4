// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "db/sqlite_error.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <string>

namespace triptych::db {

namespace {

// A missing right shows up as SQLITE_CANTOPEN when it is the log or journal beside the database
// that cannot be created, so the folder decides between "read-only" and another fault.
ErrorCode code_of(int extended, const std::filesystem::path& path) {
  switch (extended & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorCode::kBusy;
    case SQLITE_READONLY:
      return ErrorCode::kReadOnly;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return ErrorCode::kCorrupt;
    case SQLITE_CANTOPEN:
      return !path.empty() && !folder_is_writable(path.parent_path()) ? ErrorCode::kReadOnly
                                                                      : ErrorCode::kIo;
    case SQLITE_PERM:
    case SQLITE_IOERR:
    case SQLITE_FULL:
      return ErrorCode::kIo;
    case SQLITE_NOMEM:
      return ErrorCode::kOutOfMemory;
    default:  // SQLITE_ERROR, _CONSTRAINT, _MISMATCH, _AUTH, ...: the statement or its values
      return ErrorCode::kInvalidArgument;
  }
}

/// SQLite's "disk I/O error" has the system's reason no more when it is told.
bool is_refused_write(int extended) {
  return extended == SQLITE_IOERR_WRITE || extended == SQLITE_IOERR_TRUNCATE ||
         extended == SQLITE_IOERR_FSYNC || extended == SQLITE_IOERR_SHMSIZE;
}

std::string explain(ErrorCode code, const std::string& text) {
  switch (code) {
    case ErrorCode::kBusy:
      return "locked by another process (" + text + ")";
    case ErrorCode::kReadOnly:
      return "the database or its folder cannot be written (" + text + ")";
    case ErrorCode::kCorrupt:
      return "not a database, or a damaged one (" + text + ")";
    default:
      return text;
  }
}

}  // namespace

bool folder_is_writable(const std::filesystem::path& folder) {
  // faccessat with AT_EACCESS asks for the effective user, as opening a file does.
  const char* name = folder.empty() ? "." : folder.c_str();
  return faccessat(AT_FDCWD, name, W_OK | X_OK, AT_EACCESS) == 0;
}

Unexpected sqlite_failure(sqlite3* handle, const std::filesystem::path& path) {
  const int extended = sqlite3_extended_errcode(handle);
  const ErrorCode code = code_of(extended, path);
  std::string text = sqlite3_errmsg(handle);
  if (is_refused_write(extended)) {
    text += " while writing: a full disk, a quota or a limit on the size of files";
  }
  return fail(code, explain(code, text), path.string());
}

Unexpected sqlite_failure(sqlite3* handle) {
  const char* path = sqlite3_db_filename(handle, "main");
  return sqlite_failure(handle, path == nullptr ? "" : path);
}

}  // namespace triptych::db
