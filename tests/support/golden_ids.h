// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Golden token ids written by tests/reference/make_tokenizer_golden.py.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/tokenizer.h"
#include "tests/support/golden.h"

namespace triptych {

/// Fails unless `tokenizer` gives the ids of every line of tests/golden/tokenizer/<name> and
/// decodes them to the text, up to bytes for which the vocabulary has no token.
inline void expect_golden_ids(const Tokenizer& tokenizer, const std::string& name) {
  std::ifstream in(golden_dir() / "tokenizer" / name);
  ASSERT_TRUE(in.good()) << name;
  int lines = 0;
  int complete = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    const auto golden = nlohmann::json::parse(line);
    const auto text = golden["text"].get<std::string>();
    const auto expected = golden["ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(tokenizer.encode(text), expected) << line;
    // A byte without a token is dropped, so the decoded text is a subsequence of the text.
    const std::string decoded = tokenizer.decode(expected);
    size_t matched = 0;
    for (size_t i = 0; i < text.size() && matched < decoded.size(); ++i) {
      if (text[i] == decoded[matched]) ++matched;
    }
    EXPECT_EQ(matched, decoded.size()) << line;
    if (decoded.size() == text.size()) ++complete;
  }
  EXPECT_GT(lines, 100) << name;
  EXPECT_GT(complete, lines / 2) << "few texts came back whole from " << name;
}

}  // namespace triptych
