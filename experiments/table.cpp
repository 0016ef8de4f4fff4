// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/table.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/strings.h"

namespace triptych {
namespace {

constexpr std::array<std::string_view, 3> kFormatNames = {"table", "csv", "json"};

std::string printable(const std::optional<std::string>& value) {
  if (!value) return "-";
  std::string text = *value;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

std::string trimmed_right(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string render_aligned(const TextTable& table) {
  std::vector<std::vector<std::string>> lines(1);
  for (const std::string& column : table.columns) lines[0].push_back(printable(column));
  for (const auto& row : table.rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const auto& value : row) line.push_back(printable(value));
  }
  std::vector<size_t> widths(table.columns.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(line[i]));
    }
  }
  std::string out;
  for (size_t r = 0; r < lines.size(); ++r) {
    std::string text;
    for (size_t i = 0; i < lines[r].size(); ++i) {
      const std::string padding(widths[i] - display_width(lines[r][i]), ' ');
      if (i > 0) text += "  ";
      text += table.numeric[i] ? padding + lines[r][i] : lines[r][i] + padding;
    }
    out += trimmed_right(text) + "\n";
    if (r > 0) continue;
    std::string rule;
    for (size_t i = 0; i < widths.size(); ++i) {
      rule += (i > 0 ? "  " : "") + std::string(widths[i], '-');
    }
    out += rule + "\n";
  }
  return out;
}

std::string render_csv(const TextTable& table) {
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& fields) {
    out += join(fields, ",") + "\r\n";
  };
  std::vector<std::string> fields;
  for (const std::string& column : table.columns) fields.push_back(csv_field(column));
  add_line(fields);
  for (const auto& row : table.rows) {
    fields.clear();
    for (const auto& value : row) {
      fields.push_back(!value ? "" : value->empty() ? "\"\"" : csv_field(*value));
    }
    add_line(fields);
  }
  return out;
}

/// A number goes out with the digits that came in; what JSON cannot say (Inf, hex) stays text.
std::string json_value(const std::optional<std::string>& value, bool numeric) {
  if (!value) return "null";
  if (numeric && nlohmann::json::accept(*value)) return *value;
  return nlohmann::json(*value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string render_json(const TextTable& table) {
  std::string out = "[";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    out += r == 0 ? "\n  {" : ",\n  {";
    for (size_t i = 0; i < table.columns.size(); ++i) {
      if (i > 0) out += ", ";
      out += json_value(table.columns[i], false) + ": " +
             json_value(table.rows[r][i], table.numeric[i]);
    }
    out += "}";
  }
  return out + (table.rows.empty() ? "]\n" : "\n]\n");
}

}  // namespace

Result<TableFormat> parse_table_format(std::string_view text) {
  const auto found = std::find(kFormatNames.begin(), kFormatNames.end(), text);
  if (found != kFormatNames.end()) {
    return static_cast<TableFormat>(found - kFormatNames.begin());
  }
  const std::vector<std::string> names(kFormatNames.begin(), kFormatNames.end());
  const std::string near = nearest(text, names);
  return fail(ErrorCode::kInvalidArgument, "unknown format \"" + std::string(text) + "\"" +
                                               (near.empty() ? "; expected table, csv or json"
                                                             : "; did you mean \"" + near + "\"?"));
}

std::string render_table(const TextTable& table, TableFormat format) {
  switch (format) {
    case TableFormat::kTable:
      return render_aligned(table);
    case TableFormat::kCsv:
      return render_csv(table);
    case TableFormat::kJson:
      return render_json(table);
  }
  TRIPTYCH_CHECK(false, "unknown TableFormat");
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte
  }));
}

}  // namespace triptych
