// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// BpeModel: one piece of text to token ids, by merges.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/bpe_tables.h"

namespace triptych {

/// Rank and result of each pair of neighbours: open addressing, because a pair is looked up for
/// every symbol of the text and a node-based map costs a cache miss more.
class MergeTable {
 public:
  struct Merge {
    uint64_t pair = kEmpty;
    int32_t rank = 0;
    int32_t merged = 0;
  };

  explicit MergeTable(size_t count = 0);
  /// The first rank of a pair stays. Precondition: fewer than `count` pairs so far.
  void insert(int32_t left, int32_t right, int32_t rank, int32_t merged);
  [[nodiscard]] const Merge* find(int32_t left, int32_t right) const {
    const Merge& slot = slots_[find_slot(key(left, right))];
    return slot.pair == kEmpty ? nullptr : &slot;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  [[nodiscard]] size_t find_slot(uint64_t pair) const {
    const size_t mask = slots_.size() - 1;
    // Fibonacci hashing: the high bits of the product depend on both ids.
    size_t slot = static_cast<size_t>((pair * 0x9E3779B97F4A7C15ULL) >> 32) & mask;
    while (slots_[slot].pair != pair && slots_[slot].pair != kEmpty) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<Merge> slots_;
};

class BpeModel {
 public:
  /// Working memory, reused from piece to piece.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      int32_t rank;
      int32_t position;  ///< Of the left symbol.
      int32_t left;
      int32_t right;
      int32_t merged;
      bool operator<(const Candidate& other) const {  // the top of the heap is the best
        return rank != other.rank ? rank > other.rank : position > other.position;
      }
    };
    std::vector<Symbol> symbols;
    std::priority_queue<Candidate> heap;
  };

  /// Errors: those of make_bpe_tokenizer() about tokens, merges and scores.
  [[nodiscard]] Status build(const BpeTables& tables);
  /// Appends the ids of `piece`, which is UTF-8.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const;

 private:
  using TokenIds = std::unordered_map<std::string_view, int32_t>;

  Status index_tokens(const BpeTables& tables, TokenIds& ids) const;
  Status add_merges(const BpeTables& tables, const TokenIds& ids);
  Status add_scores(const BpeTables& tables, const TokenIds& ids);
  void index_symbols(const BpeTables& tables, const TokenIds& ids);
  void add_point_symbols(const std::string& token);
  void index_whole_pieces(const TokenIds& ids);
  void push_symbol(Scratch& scratch, int32_t id) const;
  void push_byte_symbols(std::string_view piece, Scratch& scratch) const;
  void push_character_symbols(std::string_view piece, Scratch& scratch) const;
  void push_candidate(Scratch& scratch, int32_t left, int32_t right) const;
  void merge_all(Scratch& scratch) const;
  [[nodiscard]] bool has_bytes_of(std::string_view character) const;
  void emit(int32_t id, std::vector<int32_t>& out) const;

  BpeAlphabet alphabet_ = BpeAlphabet::kBytes;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  std::optional<int32_t> unknown_id_;
  int32_t num_tokens_ = 0;
  /// Token of each byte, -1 without one: its symbol under kBytes, its fallback under kCharacters.
  std::array<int32_t, 256> byte_ids_{};
  /// Symbol of each code point. Under scores a code point that is no token but part of one has a
  /// symbol beyond the tokens, which merges and, left over, becomes bytes.
  std::unordered_map<char32_t, int32_t> point_ids_;
  std::vector<std::string> extra_symbols_;  ///< Text of the symbols beyond the tokens.
  MergeTable merges_;
  std::vector<std::string> whole_texts_;                        ///< Owns the keys below.
  std::unordered_map<std::string_view, int32_t> whole_pieces_;  ///< Only with ignore_merges.
};

}  // namespace triptych
