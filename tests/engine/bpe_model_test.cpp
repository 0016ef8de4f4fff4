// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/bpe_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/random.h"

namespace triptych {
namespace {

using Ids = std::vector<int32_t>;

Ids encode(const BpeTables& tables, const std::string& text) {
  BpeModel model;
  const Status status = model.build(tables);
  EXPECT_TRUE(status.has_value()) << status.error().to_string();
  BpeModel::Scratch scratch;
  Ids ids;
  model.encode(text, scratch, ids);
  return ids;
}

TEST(MergeTable, KeepsTheFirstRankOfAPair) {
  MergeTable table(100);
  std::map<std::pair<int32_t, int32_t>, int32_t> expected;
  RandomStream random(1);
  for (int32_t rank = 0; rank < 100; ++rank) {
    const std::pair<int32_t, int32_t> pair(random.below(12), random.below(12));
    table.insert(pair.first, pair.second, rank, rank);
    expected.emplace(pair, rank);
  }
  for (int32_t left = 0; left < 12; ++left) {
    for (int32_t right = 0; right < 12; ++right) {
      const auto found = expected.find({left, right});
      const MergeTable::Merge* merge = table.find(left, right);
      ASSERT_EQ(merge != nullptr, found != expected.end());
      if (merge == nullptr) continue;
      EXPECT_EQ(merge->rank, found->second);
    }
  }
}

/// The definition of BPE by scores: again and again the neighbours whose joined text has the best
/// score, leftmost first.
Ids merge_by_definition(const BpeTables& tables, const std::string& text) {
  const auto id_of = [&](const std::string& piece) {
    const auto found = std::find(tables.tokens.begin(), tables.tokens.end(), piece);
    return found == tables.tokens.end() ? -1 : static_cast<int32_t>(found - tables.tokens.begin());
  };
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  for (;;) {
    int32_t best = -1;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const int32_t id = id_of(symbols[i] + symbols[i + 1]);
      if (id < 0) continue;
      if (best >= 0 &&
          tables.scores[static_cast<size_t>(id)] <= tables.scores[static_cast<size_t>(best)]) {
        continue;
      }
      best = id;
      at = i;
    }
    if (best < 0) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    const int32_t id = id_of(symbol);
    ids.push_back(id < 0 ? *tables.unknown_id : id);
  }
  return ids;
}

TEST(BpeModel, AgreesWithTheDefinitionOnRandomScores) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomStream random(seed);
    BpeTables tables;
    tables.alphabet = BpeAlphabet::kCharacters;
    tables.tokens = {"?", "a", "b"};  // c is no token, but part of some
    tables.scores = {0, -100, -100};
    tables.unknown_id = 0;
    for (int attempt = 0; attempt < 30; ++attempt) {
      std::string token;
      for (uint64_t n = 2 + random.below(4); n > 0; --n) {
        token += static_cast<char>('a' + random.below(3));
      }
      if (std::find(tables.tokens.begin(), tables.tokens.end(), token) != tables.tokens.end()) {
        continue;
      }
      tables.tokens.push_back(token);
      tables.scores.push_back(-static_cast<double>(random.below(10)));  // with ties
    }
    for (int i = 0; i < 10; ++i) {
      std::string text;
      for (uint64_t n = 1 + random.below(40); n > 0; --n) {
        text += static_cast<char>('a' + random.below(3));
      }
      ASSERT_EQ(encode(tables, text), merge_by_definition(tables, text)) << text << " " << seed;
    }
  }
}

TEST(BpeModel, AnUnknownCharacterWaitsForTheNextKnownOne) {
  BpeTables tables;
  tables.alphabet = BpeAlphabet::kCharacters;
  tables.tokens = {"?", "a", "<0xC3>", "<0xA9>"};
  tables.byte_fallback = true;
  tables.unknown_id = 0;
  // The bytes of U+00E9 overtake the unknown U+4E16, as in `tokenizers`.
  EXPECT_EQ(encode(tables, "a\u4e16\u00e9a"), (Ids{1, 2, 3, 0, 1}));
  tables.unknown_id.reset();
  EXPECT_EQ(encode(tables, "a\u4e16a"), (Ids{1, 1}));
}

TEST(BpeModel, TokensThatAreOnlyAddedAreNotMade) {
  BpeTables tables;
  tables.alphabet = BpeAlphabet::kCharacters;
  tables.tokens = {"?", "a", "b"};
  tables.unknown_id = 0;
  tables.added_tokens = {{.id = 2, .in_model = false}};
  EXPECT_EQ(encode(tables, "ab"), (Ids{1, 0}));
}

TEST(BpeModel, RefusesScoresThatCannotBeUsed) {
  BpeTables tables;
  tables.alphabet = BpeAlphabet::kCharacters;
  tables.tokens = {"a", std::string(2000, 'a')};
  tables.scores = {0, 0};
  BpeModel model;
  EXPECT_EQ(model.build(tables).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace triptych
