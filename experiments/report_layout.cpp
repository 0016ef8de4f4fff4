// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Documents as text for a terminal and as Markdown.
#include <algorithm>

#include "base/strings.h"
#include "experiments/report_render.h"

namespace triptych {

namespace {

using Kind = DocumentBlock::Kind;

constexpr size_t kWidth = 100;

/// Name, two spaces, and the value wrapped beside it.
std::string terminal_fields(const TextTable& table) {
  size_t name_width = 0;
  for (const auto& row : table.rows) {
    name_width = std::max(name_width, display_width(row[0].value_or("")));
  }
  std::string out;
  for (const auto& row : table.rows) {
    std::string name = row[0].value_or("");
    name.append(name_width - display_width(name) + 2, ' ');
    for (const std::string& line : wrap_text(row[1].value_or(""), kWidth - name.size())) {
      out += name + line + "\n";
      name.assign(name_width + 2, ' ');
    }
  }
  return out;
}

std::string terminal_block(const DocumentBlock& block) {
  switch (block.kind) {
    case Kind::kTitle:
      return "Triptych: " + block.text + "\n";
    case Kind::kHeading:
      return "\n" + block.text + "\n" + std::string(display_width(block.text), '=') + "\n";
    case Kind::kCaption:
      return "\n" + join(wrap_text(block.text, kWidth), "\n") + "\n";
    case Kind::kParagraph:
      return join(wrap_text(block.text, kWidth), "\n") + "\n";
    case Kind::kFields:
      return terminal_fields(block.table);
    case Kind::kTable:
      return render_table(block.table, TableFormat::kTable);
    case Kind::kCommands: {
      std::string out = "\n" + block.text + "\n";
      for (const auto& row : block.table.rows) out += "  " + row[0].value_or("") + "\n";
      return out;
    }
  }
  TRIPTYCH_CHECK(false, "a kind of block is missing in terminal_block()");
}

std::string markdown_cell(const std::optional<std::string>& value) {
  if (!value) return "-";
  std::string out;
  // Leading spaces and bars carry meaning that Markdown would drop: keep them as code.
  if (value->starts_with("[") && value->ends_with("]") &&
      value->find_first_not_of("[]#- ") == std::string::npos) {
    return "`" + *value + "`";
  }
  const size_t spaces = std::min(value->find_first_not_of(' '), value->size());
  for (size_t i = 0; i < spaces; ++i) out += "&nbsp;";
  for (const char c : value->substr(spaces)) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string markdown_table(const TextTable& table) {
  std::string out = "|";
  for (const std::string& column : table.columns) out += " " + markdown_cell(column) + " |";
  out += "\n|";
  for (const bool numeric : table.numeric) out += numeric ? " ---: |" : " --- |";
  out += "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const auto& value : row) out += " " + markdown_cell(value) + " |";
    out += "\n";
  }
  return out;
}

std::string markdown_block(const DocumentBlock& block) {
  switch (block.kind) {
    case Kind::kTitle:
      return "# " + block.text + "\n";
    case Kind::kHeading:
      return "\n## " + block.text + "\n";
    case Kind::kCaption:
      return "\n### " + block.text + "\n";
    case Kind::kParagraph:
      return "\n" + block.text + "\n";
    case Kind::kFields: {
      std::string out = "\n";
      for (const auto& row : block.table.rows) {
        out += "- **" + markdown_cell(row[0]) + "**: " + markdown_cell(row[1]) + "\n";
      }
      return out;
    }
    case Kind::kTable:
      return "\n" + markdown_table(block.table);
    case Kind::kCommands:
      return "";  // what to type next belongs to a session, not to a document
  }
  TRIPTYCH_CHECK(false, "a kind of block is missing in markdown_block()");
}

}  // namespace

std::vector<std::string> wrap_text(std::string_view text, size_t width) {
  std::string spaced(text);  // a line break or an escape in a name must not break the layout
  for (char& c : spaced) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  std::vector<std::string> lines(1);
  size_t columns = 0;  // of the last line
  for (std::string word : split(spaced, ' ')) {
    if (word.empty()) continue;
    if (columns > 0 && columns + 1 + display_width(word) > width) {
      lines.emplace_back();
      columns = 0;
    }
    if (columns > 0) lines.back() += ' ', ++columns;
    while (display_width(word) > width) {
      size_t cut = width;  // bytes, at most `width` columns; moved to the start of a character
      while (cut > 1 && (static_cast<unsigned char>(word[cut]) & 0xC0) == 0x80) --cut;
      lines.back() += word.substr(0, cut);
      word.erase(0, cut);
      lines.emplace_back();
    }
    lines.back() += word;
    columns += display_width(word);
  }
  return lines;
}

std::string render_terminal(const Document& document) {
  std::string out;
  for (const DocumentBlock& block : document) out += terminal_block(block);
  return out;
}

std::string render_markdown(const Document& document) {
  std::string out;
  for (const DocumentBlock& block : document) out += markdown_block(block);
  return out;
}

}  // namespace triptych
