// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: special tokens, then pieces by regular expressions, then merges in each piece.
#include "engine/tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <unordered_map>

#include "base/regex.h"
#include "base/strings.h"
#include "engine/byte_alphabet.h"

namespace triptych {
namespace {

using Pieces = std::vector<std::string_view>;

/// `\s` of the public patterns is the White_Space property, as Oniguruma has it. PCRE2 also counts
/// U+180E, so the class is spelled out. `\S` inside a class cannot be spelled out and stays.
std::string spell_out_white_space(std::string_view pattern) {
  constexpr std::string_view kWhiteSpace = R"(\t-\r\x{85}\p{Z})";
  std::string text;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      text += c;
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      text += in_class ? std::string(kWhiteSpace) : "[" + std::string(kWhiteSpace) + "]";
    } else if (escaped == 'S' && !in_class) {
      text += "[^" + std::string(kWhiteSpace) + "]";
    } else {
      text += {c, escaped};
    }
  }
  return text;
}

/// Rank and result of each pair of neighbours: open addressing, because a pair is looked up for
/// every byte of the text and a node-based map costs a cache miss more.
class MergeTable {
 public:
  struct Merge {
    uint64_t pair = kEmpty;
    int32_t rank = 0;
    int32_t merged = 0;
  };

  explicit MergeTable(size_t count) : slots_(std::bit_ceil(2 * count + 1)) {}

  /// The first rank of a pair stays.
  void insert(int32_t left, int32_t right, int32_t rank, int32_t merged) {
    Merge& slot = slots_[find_slot(key(left, right))];
    if (slot.pair == kEmpty) slot = {key(left, right), rank, merged};
  }
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

/// Special tokens by first byte, longest first: the leftmost longest match wins.
class SpecialMatcher {
 public:
  void add(std::string text, int32_t id) {
    auto& bucket = buckets_[static_cast<uint8_t>(text[0])];
    const auto place = std::find_if(bucket.begin(), bucket.end(), [&](const Special& other) {
      return other.text.size() < text.size();
    });
    bucket.insert(place, {std::move(text), id});
  }

  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };
  [[nodiscard]] std::optional<Match> find(std::string_view text, size_t offset) const {
    for (size_t i = offset; i < text.size(); ++i) {
      for (const Special& special : buckets_[static_cast<uint8_t>(text[i])]) {
        if (text.substr(i, special.text.size()) == special.text) {
          return Match{i, i + special.text.size(), special.id};
        }
      }
    }
    return std::nullopt;
  }

 private:
  struct Special {
    std::string text;
    int32_t id;
  };
  std::array<std::vector<Special>, 256> buckets_;
};

/// Working memory of one encode() call, reused from piece to piece.
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

class ByteLevelBpe final : public Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> make(BpeTables tables);

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const int32_t> tokens) const override;
  [[nodiscard]] int64_t vocab_size() const override { return std::ssize(bytes_); }

 private:
  using TokenIds = std::unordered_map<std::string_view, int32_t>;

  explicit ByteLevelBpe(size_t num_merges) : merges_(num_merges) {}

  Status add_tokens(const BpeTables& tables, TokenIds& ids);
  Status add_merges(const BpeTables& tables, const TokenIds& ids);
  Status add_patterns(const BpeTables& tables);
  void encode_text(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const;
  void push_candidate(Scratch& scratch, int32_t left, int32_t right) const;
  void merge_all(Scratch& scratch) const;

  std::vector<std::string> bytes_;  ///< id -> the bytes that the token stands for.
  std::array<int32_t, 256> byte_ids_{};
  MergeTable merges_;
  SpecialMatcher specials_;
  std::vector<Regex> patterns_;
  size_t prefix_space_before_ = SIZE_MAX;
  std::optional<int32_t> unknown_id_;
  std::unordered_map<std::string_view, int32_t> whole_pieces_;  ///< Only with ignore_merges.
};

Unexpected corrupt(const BpeTables& tables, std::string message) {
  return fail(ErrorCode::kCorrupt, std::move(message), tables.where);
}

Status ByteLevelBpe::add_tokens(const BpeTables& tables, TokenIds& ids) {
  const auto count = static_cast<int64_t>(tables.tokens.size());
  for (const std::string& token : tables.tokens) {
    const auto id = static_cast<int32_t>(bytes_.size());
    // An empty text marks an id that the file does not use.
    if (!token.empty() && !ids.emplace(token, id).second) {
      return corrupt(tables, "token \"" + token + "\" has the ids " +
                                 std::to_string(ids.at(token)) + " and " + std::to_string(id));
    }
    bytes_.push_back(decode_alphabet(token).value_or(token));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(encode_byte(static_cast<uint8_t>(byte)));
    byte_ids_[static_cast<size_t>(byte)] = found == ids.end() ? -1 : found->second;
  }
  std::vector<bool> special(tables.tokens.size());
  for (const int32_t id : tables.special_ids) {
    if (id < 0 || id >= count || tables.tokens[static_cast<size_t>(id)].empty()) {
      return corrupt(tables, "special token " + std::to_string(id) + " is not among the " +
                                 std::to_string(count) + " tokens");
    }
    if (special[static_cast<size_t>(id)]) continue;
    special[static_cast<size_t>(id)] = true;
    bytes_[static_cast<size_t>(id)] = tables.tokens[static_cast<size_t>(id)];
    specials_.add(tables.tokens[static_cast<size_t>(id)], id);
  }
  if (tables.unknown_id && (*tables.unknown_id < 0 || *tables.unknown_id >= count)) {
    return corrupt(tables, "unknown token " + std::to_string(*tables.unknown_id) +
                               " is not among the " + std::to_string(count) + " tokens");
  }
  unknown_id_ = tables.unknown_id;
  if (!tables.ignore_merges) return {};
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (!special[id] && !bytes_[id].empty()) {
      whole_pieces_.emplace(bytes_[id], static_cast<int32_t>(id));
    }
  }
  return {};
}

Status ByteLevelBpe::add_merges(const BpeTables& tables, const TokenIds& ids) {
  int32_t rank = 0;
  for (const std::string& merge : tables.merges) {
    const size_t space = merge.find(' ');
    const std::string_view left = std::string_view(merge).substr(0, space);
    const std::string_view right =
        space == std::string::npos ? "" : std::string_view(merge).substr(space + 1);
    const std::string merged = std::string(left) + std::string(right);
    for (const std::string_view part : {left, right, std::string_view(merged)}) {
      if (!ids.contains(part)) {
        return corrupt(tables, "merge " + std::to_string(rank) + ", \"" + merge +
                                   "\", needs the token \"" + std::string(part) +
                                   "\", which is not in the vocabulary");
      }
    }
    merges_.insert(ids.at(left), ids.at(right), rank++, ids.at(merged));
  }
  return {};
}

Status ByteLevelBpe::add_patterns(const BpeTables& tables) {
  const size_t shift = tables.split_digits ? 1 : 0;
  std::vector<std::string> patterns(tables.split_patterns);
  if (tables.split_digits) patterns.insert(patterns.begin(), R"(\p{N})");
  for (const std::string& pattern : patterns) {
    auto regex = Regex::compile(spell_out_white_space(pattern));
    if (!regex) {
      return fail(regex.error().code, "\"" + pattern + "\": " + regex.error().message,
                  tables.where);
    }
    patterns_.push_back(std::move(*regex));
  }
  if (tables.prefix_space_before) prefix_space_before_ = *tables.prefix_space_before + shift;
  return {};
}

Result<std::shared_ptr<const Tokenizer>> ByteLevelBpe::make(BpeTables tables) {
  if (tables.tokens.size() > INT32_MAX || tables.merges.size() > INT32_MAX) {
    return corrupt(tables, "more than 2^31 tokens or merges");
  }
  std::shared_ptr<ByteLevelBpe> tokenizer(new ByteLevelBpe(tables.merges.size()));
  TokenIds ids;
  ids.reserve(tables.tokens.size());
  TRIPTYCH_RETURN_IF_ERROR(tokenizer->add_tokens(tables, ids));
  TRIPTYCH_RETURN_IF_ERROR(tokenizer->add_merges(tables, ids));
  TRIPTYCH_RETURN_IF_ERROR(tokenizer->add_patterns(tables));
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

std::vector<int32_t> ByteLevelBpe::encode(std::string_view text) const {
  std::string clean;
  if (!is_valid_utf8(text)) {
    clean = replace_invalid_utf8(text);
    text = clean;
  }
  Scratch scratch;
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 3);
  size_t begin = 0;
  while (begin < text.size()) {
    const auto special = specials_.find(text, begin);
    encode_text(text.substr(begin, special ? special->begin - begin : std::string_view::npos),
                scratch, tokens);
    if (!special) break;
    tokens.push_back(special->id);
    begin = special->end;
  }
  return tokens;
}

/// Matches and the gaps between them, in order.
void split_piece(const Regex& pattern, std::string_view piece, Pieces& out) {
  size_t end = 0;
  const auto push = [&](size_t first, size_t last) {
    if (first < last) out.push_back(piece.substr(first, last - first));
  };
  for (const auto& [first, last] : pattern.find_all(piece)) {
    push(end, first);
    push(first, last);
    end = last;
  }
  push(end, piece.size());
}

void ByteLevelBpe::encode_text(std::string_view text, Scratch& scratch,
                               std::vector<int32_t>& out) const {
  if (text.empty()) return;
  Pieces pieces{text};
  std::vector<std::string> prefixed;  // owns the pieces that got a space
  for (size_t stage = 0; stage <= patterns_.size(); ++stage) {
    if (stage == prefix_space_before_) {
      prefixed.reserve(pieces.size());  // keeps the views valid
      for (std::string_view& piece : pieces) {
        if (piece[0] != ' ') piece = prefixed.emplace_back(" " + std::string(piece));
      }
    }
    if (stage == patterns_.size()) break;
    Pieces next;
    next.reserve(pieces.size());
    for (const std::string_view piece : pieces) split_piece(patterns_[stage], piece, next);
    pieces = std::move(next);
  }
  for (const std::string_view piece : pieces) encode_piece(piece, scratch, out);
}

void ByteLevelBpe::push_candidate(Scratch& scratch, int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return;
  const int32_t left_id = scratch.symbols[static_cast<size_t>(left)].id;
  const int32_t right_id = scratch.symbols[static_cast<size_t>(right)].id;
  const MergeTable::Merge* merge = merges_.find(left_id, right_id);
  if (merge == nullptr) return;
  scratch.heap.push({merge->rank, left, left_id, right_id, merge->merged});
}

void ByteLevelBpe::encode_piece(std::string_view piece, Scratch& scratch,
                                std::vector<int32_t>& out) const {
  if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
    out.push_back(whole->second);
    return;
  }
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (const char c : piece) {
    int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) {
      if (!unknown_id_) continue;
      id = *unknown_id_;
    }
    const auto position = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, position - 1, position + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  merge_all(scratch);
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    out.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

/// Applies merges in the order of their ranks, leftmost first: O(n log n) with stale candidates
/// left in the heap and recognised by the ids they were made from.
void ByteLevelBpe::merge_all(Scratch& scratch) const {
  constexpr int32_t kGone = -2;
  auto& symbols = scratch.symbols;
  for (int32_t i = 0; i + 1 < std::ssize(symbols); ++i) push_candidate(scratch, i, i + 1);
  while (!scratch.heap.empty()) {
    const Scratch::Candidate best = scratch.heap.top();
    scratch.heap.pop();
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.id != best.left || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = best.merged;
    right.id = kGone;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    push_candidate(scratch, left.previous, best.position);
    push_candidate(scratch, best.position, left.next);
  }
}

std::string ByteLevelBpe::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t id : tokens) {
    if (id >= 0 && id < std::ssize(bytes_)) text += bytes_[static_cast<size_t>(id)];
  }
  return text;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_byte_level_bpe(BpeTables tables) {
  return ByteLevelBpe::make(std::move(tables));
}

}  // namespace triptych
