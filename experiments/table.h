// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Tables of text: aligned for a terminal, CSV (RFC 4180) or JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "db/store.h"

namespace triptych {

/// Columns, rows of optional text and which columns hold numbers.
using TextTable = db::Store::Table;

enum class TableFormat : uint8_t { kTable, kCsv, kJson };
/// "table", "csv", "json". Errors: kInvalidArgument with the nearest name.
[[nodiscard]] Result<TableFormat> parse_table_format(std::string_view text);

/// Table: columns padded with two spaces between, numbers to the right, a rule under the head, NULL
///   as "-", control characters as '?'.
/// CSV: RFC 4180 with CRLF line ends; a field is quoted when it holds a comma, quote, CR or LF;
/// NULL
///   is an empty field and an empty text is "".
/// JSON: an array of objects, one a line; numeric columns are numbers, NULL is null.
[[nodiscard]] std::string render_table(const TextTable& table, TableFormat format);

/// One CSV field, quoted if needed.
[[nodiscard]] std::string csv_field(std::string_view text);
/// Width on a terminal in characters (code points; every one counts as one column).
[[nodiscard]] size_t display_width(std::string_view text);

}  // namespace triptych
