// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"

namespace triptych {
namespace {

TextTable example() {
  TextTable table;
  table.columns = {"stack", "tpot_ns", "note"};
  table.numeric = {false, true, false};
  table.rows = {{"baseline", "15000000.5", "a,b"},
                {"full", std::nullopt, "says \"hi\"\nthere"},
                {"é", "3", std::nullopt},
                {"", "1e9", ""}};
  return table;
}

/// Reads RFC 4180 text; an independent reader, so that quoting is tested and not mirrored.
std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      rows.back().emplace_back();
    } else if (!quoted && c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      rows.push_back({""});
      ++i;
    } else {
      rows.back().back() += c;
    }
  }
  rows.pop_back();
  return rows;
}

TEST(Table, IsAligned) {
  EXPECT_EQ(render_table(example(), TableFormat::kTable),
            "stack        tpot_ns  note\n"
            "--------  ----------  ---------------\n"
            "baseline  15000000.5  a,b\n"
            "full               -  says \"hi\"?there\n"
            "é                  3  -\n"
            "                 1e9\n");
}

TEST(Csv, QuotesByRfc4180) {
  EXPECT_EQ(render_table(example(), TableFormat::kCsv),
            "stack,tpot_ns,note\r\n"
            "baseline,15000000.5,\"a,b\"\r\n"
            "full,,\"says \"\"hi\"\"\nthere\"\r\n"
            "é,3,\r\n"
            "\"\",1e9,\"\"\r\n");
}

TEST(Json, IsValidWithNullsAndNumbers) {
  const auto json = nlohmann::json::parse(render_table(example(), TableFormat::kJson));
  ASSERT_EQ(json.size(), 4u);
  EXPECT_EQ(json[0]["tpot_ns"], 15000000.5);
  EXPECT_TRUE(json[1]["tpot_ns"].is_null());
  EXPECT_EQ(json[1]["note"], "says \"hi\"\nthere");
  EXPECT_EQ(json[3]["tpot_ns"], 1e9);
  TextTable odd = example();
  odd.rows = {{"inf", "Inf", "\xff"}};
  const auto text = nlohmann::json::parse(render_table(odd, TableFormat::kJson));
  EXPECT_EQ(text[0]["tpot_ns"], "Inf") << "JSON has no infinity; the text stays";
}

TEST(Json, EmptyTableIsAnEmptyList) {
  TextTable empty = example();
  empty.rows.clear();
  EXPECT_EQ(render_table(empty, TableFormat::kJson), "[]\n");
  EXPECT_EQ(render_table(empty, TableFormat::kCsv), "stack,tpot_ns,note\r\n");
}

TEST(Csv, AnyTextComesBack) {
  constexpr std::string_view kPieces = "a,\"\r\n ;'";
  RandomStream random(5);
  TextTable table;
  table.columns = {"a", "b"};
  table.numeric = {false, false};
  for (int row = 0; row < 300; ++row) {
    std::vector<std::optional<std::string>> values;
    for (int column = 0; column < 2; ++column) {
      std::string text;
      for (uint64_t n = random.below(6); n > 0; --n) text += kPieces[random.below(kPieces.size())];
      values.emplace_back(text);
    }
    table.rows.push_back(values);
  }
  const auto rows = read_csv(render_table(table, TableFormat::kCsv));
  ASSERT_EQ(rows.size(), table.rows.size() + 1);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    ASSERT_EQ(rows[i + 1].size(), 2u);
    for (size_t j = 0; j < 2; ++j) EXPECT_EQ(rows[i + 1][j], *table.rows[i][j]);
  }
}

TEST(TableFormat, NamesAreSuggested) {
  EXPECT_EQ(parse_table_format("csv").value(), TableFormat::kCsv);
  EXPECT_EQ(parse_table_format("jsn").error().message,
            "unknown format \"jsn\"; did you mean \"json\"?");
}

}  // namespace
}  // namespace triptych
