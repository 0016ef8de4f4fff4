// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Golden token ids written by tests/reference/make_tokenizer_golden.py.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/strings.h"
#include "engine/byte_alphabet.h"
#include "engine/tokenizer.h"
#include "tests/support/golden.h"

namespace triptych {

/// One text of tests/golden/tokenizer/lines.jsonl, as bytes.
inline std::string golden_text(const std::string& line) {
  const auto json = nlohmann::json::parse(line);
  if (json.is_string()) return json.get<std::string>();
  const auto hex = json.at("hex").get<std::string>();
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// Fails unless `tokenizer` gives the ids of tests/golden/tokenizer/<name>.ids for every text of
/// lines.jsonl, with and without special tokens around them, and decodes them to what the
/// reference decodes them to, whole and one token at a time.
inline void expect_golden_ids(const Tokenizer& tokenizer, const std::string& name) {
  std::ifstream texts(golden_dir() / "tokenizer" / "lines.jsonl");
  std::ifstream golden(golden_dir() / "tokenizer" / (name + ".ids"));
  std::string header;
  ASSERT_TRUE(texts.good() && std::getline(golden, header)) << name;
  const auto around = nlohmann::json::parse(header);
  const auto prefix = around.at("prefix").get<std::vector<int32_t>>();
  const auto suffix = around.at("suffix").get<std::vector<int32_t>>();
  int lines = 0;
  for (std::string line, expected; std::getline(texts, line); ++lines) {
    ASSERT_TRUE(std::getline(golden, expected)) << lines;
    const std::string text = golden_text(line);
    const std::vector<std::string> fields = split(expected, '\t');
    std::vector<int32_t> ids;
    if (!fields[0].empty()) {
      for (const std::string& id : split(fields[0], ' ')) ids.push_back(std::stoi(id, nullptr, 36));
    }
    ASSERT_EQ(tokenizer.encode(text), ids) << line;
    std::vector<int32_t> all = prefix;
    all.insert(all.end(), ids.begin(), ids.end());
    all.insert(all.end(), suffix.begin(), suffix.end());
    ASSERT_EQ(tokenizer.encode_with_special_tokens(text), all) << line;

    const std::string decoded = tokenizer.decode(ids);
    ASSERT_EQ(replace_invalid_utf8(decoded),
              fields.size() > 1 ? nlohmann::json::parse(fields[1]).get<std::string>()
                                : replace_invalid_utf8(text))
        << line;
    size_t first = 0;  // tokens up to the first that decodes to something
    std::string pieces;
    while (first < ids.size() && pieces.empty()) {
      pieces = tokenizer.decode(std::span(ids).first(++first));
    }
    for (size_t i = first; i < ids.size(); ++i) pieces += tokenizer.decode_more({&ids[i], 1});
    ASSERT_EQ(pieces, decoded) << line;
  }
  EXPECT_GE(lines, 2000) << name;
}

}  // namespace triptych
