// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "base/units.h"
#include "engine/bpe_tables.h"
#include "engine/byte_alphabet.h"
#include "engine/split_patterns.h"

namespace triptych {
namespace {

/// All bytes as ids 0 to 255, then what a test adds.
BpeTables byte_tables() {
  BpeTables tables;
  for (int byte = 0; byte < 256; ++byte) {
    tables.tokens.push_back(encode_byte(static_cast<uint8_t>(byte)));
  }
  tables.where = "test";
  return tables;
}

PreTokenizerStep split_at(std::string_view pattern) { return {.pattern = std::string(pattern)}; }

void add_merge(BpeTables& tables, const std::string& left, const std::string& right) {
  tables.tokens.push_back(left + right);
  tables.merges.emplace_back(left, right);
}

std::shared_ptr<const Tokenizer> make(BpeTables tables) {
  auto tokenizer = make_bpe_tokenizer(std::move(tables));
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().to_string();
    return nullptr;
  }
  return *tokenizer;
}

Error error_of(BpeTables tables) {
  const auto tokenizer = make_bpe_tokenizer(std::move(tables));
  if (!tokenizer) return tokenizer.error();
  ADD_FAILURE() << "expected an error";
  return {};
}

using Ids = std::vector<int32_t>;

TEST(ByteLevelBpe, MergesByRankAndThenFromTheLeft) {
  BpeTables tables = byte_tables();
  add_merge(tables, "b", "c");    // 256, best
  add_merge(tables, "a", "b");    // 257
  add_merge(tables, "ab", "ab");  // 258
  const auto tokenizer = make(tables);
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{'a', 256}));
  EXPECT_EQ(tokenizer->encode("ababab"), (Ids{258, 257}));
  EXPECT_EQ(tokenizer->encode("x"), (Ids{'x'}));
  EXPECT_TRUE(tokenizer->encode("").empty());
  EXPECT_EQ(tokenizer->vocab_size(), 259);
}

/// The definition of BPE: again and again the best-ranked pair, leftmost first.
Ids merge_by_definition(const BpeTables& tables, const std::string& text) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.push_back(encode_byte(static_cast<uint8_t>(c)));
  for (;;) {
    size_t best_rank = tables.merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (tables.merges[rank] == std::pair(symbols[i], symbols[i + 1])) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == tables.merges.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    const auto found = std::find(tables.tokens.begin(), tables.tokens.end(), symbol);
    ids.push_back(static_cast<int32_t>(found - tables.tokens.begin()));
  }
  return ids;
}

TEST(ByteLevelBpe, AgreesWithTheDefinitionOnRandomVocabularies) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomStream random(seed);
    BpeTables tables = byte_tables();
    std::vector<std::string> parts{"a", "b", "c"};
    for (int attempt = 0; attempt < 30; ++attempt) {
      const std::string left = parts[random.below(parts.size())];
      const std::string right = parts[random.below(parts.size())];
      const bool known = std::find(tables.tokens.begin(), tables.tokens.end(), left + right) !=
                         tables.tokens.end();
      if (known || left.size() + right.size() > 8) continue;
      add_merge(tables, left, right);
      parts.push_back(left + right);
    }
    const auto tokenizer = make(tables);
    for (int i = 0; i < 10; ++i) {
      std::string text;
      for (uint64_t n = 1 + random.below(60); n > 0; --n) {
        text += static_cast<char>('a' + random.below(3));
      }
      ASSERT_EQ(tokenizer->encode(text), merge_by_definition(tables, text)) << text;
    }
  }
}

TEST(ByteLevelBpe, DecodesWhatItEncodesWhateverTheBytes) {
  BpeTables tables = byte_tables();
  add_merge(tables, encode_byte(0xE4), encode_byte(0xB8));
  tables.pre_tokenizer = {split_at(kDigitPattern), split_at(kGpt2Pattern)};
  const auto tokenizer = make(tables);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random(seed);
    std::string text;
    for (uint64_t n = random.below(50); n > 0; --n) text += static_cast<char>(random.below(256));
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), replace_invalid_utf8(text));
  }
}

TEST(ByteLevelBpe, MatchesSpecialTokensVerbatimLongestFirst) {
  BpeTables tables = byte_tables();
  tables.tokens.insert(tables.tokens.end(), {"<a>", "<a>b", "<\u00e9 x>"});
  tables.added_tokens = {{.id = 256}, {.id = 257}, {.id = 258}};
  add_merge(tables, "<", "a");  // must not win over the special token
  const auto tokenizer = make(tables);
  EXPECT_EQ(tokenizer->encode("x<a>y"), (Ids{'x', 256, 'y'}));
  EXPECT_EQ(tokenizer->encode("<a>b<a><a"), (Ids{257, 256, 259}));
  EXPECT_EQ(tokenizer->encode("<\u00e9 x>"), (Ids{258}));
  EXPECT_EQ(tokenizer->decode(Ids{258, 256, 'y'}), "<\u00e9 x><a>y");
}

TEST(ByteLevelBpe, DecodingIgnoresIdsOutOfRange) {
  const auto tokenizer = make(byte_tables());
  EXPECT_EQ(tokenizer->decode(Ids{'a', -1, 256, 1 << 30, 'b'}), "ab");
}

TEST(ByteLevelBpe, SplitsDigitsAndPatternsBeforeMerging) {
  BpeTables tables = byte_tables();
  add_merge(tables, "1", "2");
  add_merge(tables, "a", "1");
  tables.pre_tokenizer = {split_at(kDigitPattern)};
  EXPECT_EQ(make(tables)->encode("a12"), (Ids{'a', '1', '2'}));
  tables.pre_tokenizer = {};
  EXPECT_EQ(make(tables)->encode("a12"), (Ids{'a', 256}));
  tables.pre_tokenizer = {split_at(R"(\p{L}1)")};  // the gap after the match is a piece of its own
  EXPECT_EQ(make(tables)->encode("a12"), (Ids{257, '2'}));
}

TEST(ByteLevelBpe, WhiteSpaceIsThePropertyOfUnicode) {
  BpeTables tables = byte_tables();
  tables.ignore_merges = true;
  // One token for each piece that may arise, so that the split shows in the ids.
  for (const std::string_view piece : {"a\u180e", "a\u0085", "a\u2028"}) {
    std::string token;
    for (const char c : piece) token += encode_byte(static_cast<uint8_t>(c));
    tables.tokens.push_back(token);
  }
  tables.pre_tokenizer = {split_at(R"(a\s|a[^\s])")};
  const auto tokenizer = make(tables);
  EXPECT_EQ(tokenizer->encode("a\u180e"), (Ids{256}));
  EXPECT_EQ(tokenizer->encode("a\u0085"), (Ids{257}));
  tables.pre_tokenizer = {split_at(R"(a\S)")};
  EXPECT_EQ(make(tables)->encode("a\u180e"), (Ids{256}));
  EXPECT_EQ(make(tables)->encode("a\u2028 "), (Ids{'a', 0xE2, 0x80, 0xA8, ' '}));
}

TEST(ByteLevelBpe, IgnoreMergesTakesWholePieces) {
  BpeTables tables = byte_tables();
  tables.tokens.push_back("abc");  // no merges lead to it
  EXPECT_EQ(make(tables)->encode("abc"), (Ids{'a', 'b', 'c'}));
  tables.ignore_merges = true;
  EXPECT_EQ(make(tables)->encode("abc"), (Ids{256}));
}

TEST(ByteLevelBpe, PrefixesPiecesWithASpace) {
  BpeTables tables = byte_tables();
  const PreTokenizerStep space{.kind = PreTokenizerStep::Kind::kPrefixSpace};
  tables.pre_tokenizer = {split_at("x"), space, split_at("y")};
  EXPECT_EQ(make(tables)->encode("axb"), (Ids{' ', 'a', ' ', 'x', ' ', 'b'}));
  EXPECT_EQ(make(tables)->encode(" ayb"), (Ids{' ', 'a', 'y', 'b'}));
  tables.pre_tokenizer = {split_at("x"), split_at("y"), space};
  EXPECT_EQ(make(tables)->encode("ay"), (Ids{' ', 'a', ' ', 'y'}));
}

TEST(ByteLevelBpe, BytesWithoutATokenAreDroppedOrUnknown) {
  BpeTables tables = byte_tables();
  tables.tokens[4].clear();
  EXPECT_EQ(make(tables)->encode("a\x04"
                                 "b"),
            (Ids{'a', 'b'}));
  tables.unknown_id = 0;
  EXPECT_EQ(make(tables)->encode("a\x04"
                                 "b"),
            (Ids{'a', 0, 'b'}));
}

TEST(ByteLevelBpe, RefusesTablesThatContradictThemselves) {
  BpeTables tables = byte_tables();
  tables.tokens.push_back("a");
  Error error = error_of(tables);
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_EQ(error.to_string(), "test: token \"a\" has the ids 97 and 256");

  using Merge = std::pair<std::string, std::string>;
  for (const Merge& merge : {Merge{"a", "b"}, {"a", ""}, {"", ""}, {"", "a"}, {"a", "b c"}}) {
    tables = byte_tables();
    tables.merges = {merge};
    EXPECT_EQ(error_of(tables).code, ErrorCode::kCorrupt) << merge.first << " " << merge.second;
  }
  for (const int32_t id : {-1, 256}) {
    tables = byte_tables();
    tables.added_tokens = {{.id = id}};
    EXPECT_EQ(error_of(tables).code, ErrorCode::kCorrupt);
    tables.added_tokens.clear();
    tables.prefix = {id};
    EXPECT_EQ(error_of(tables).code, ErrorCode::kCorrupt);
    tables.prefix.clear();
    tables.unknown_id = id;
    EXPECT_EQ(error_of(tables).code, ErrorCode::kCorrupt);
  }
  tables = byte_tables();
  tables.pre_tokenizer = {split_at("(")};
  error = error_of(tables);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.where, "test");
}

TEST(ByteLevelBpe, LongPiecesTakeLittleTime) {
  BpeTables tables = byte_tables();
  std::string part = "a";
  for (int i = 0; i < 6; ++i) {
    add_merge(tables, part, part);
    part += part;
  }
  const auto tokenizer = make(tables);
  const int64_t start = now_ns();
  EXPECT_EQ(tokenizer->encode(std::string(1 << 18, 'a')), Ids((1 << 18) / 64, 256 + 5));
  // Quadratic merging would take 2^36 steps, a minute or more; n log n takes some 100 ms.
  EXPECT_LT(now_ns() - start, int64_t{10} * 1000 * 1000 * 1000);
}

}  // namespace
}  // namespace triptych
