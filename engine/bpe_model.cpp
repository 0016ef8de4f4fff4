// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/bpe_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/strings.h"
#include "base/unicode.h"
#include "engine/byte_alphabet.h"

namespace triptych {
namespace {

/// Splitting a token at every place costs the square of its length; real ones have below 100 bytes.
constexpr size_t kMaxScoredBytes = 1024;

Unexpected corrupt(const BpeTables& tables, std::string message) {
  return fail(ErrorCode::kCorrupt, std::move(message), tables.where);
}

/// Rank of each token: 0 for the highest score, equal for equal scores.
std::vector<int32_t> ranks_of(const std::vector<double>& scores) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  std::vector<int32_t> ranks(scores.size());
  int32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto id = static_cast<size_t>(order[i]);
    if (i > 0 && scores[id] != scores[static_cast<size_t>(order[i - 1])]) ++rank;
    ranks[id] = rank;
  }
  return ranks;
}

}  // namespace

MergeTable::MergeTable(size_t count) : slots_(std::bit_ceil(2 * count + 1)) {}

void MergeTable::insert(int32_t left, int32_t right, int32_t rank, int32_t merged) {
  Merge& slot = slots_[find_slot(key(left, right))];
  if (slot.pair == kEmpty) slot = {key(left, right), rank, merged};
}

Status BpeModel::build(const BpeTables& tables) {
  if (tables.tokens.size() > INT32_MAX || tables.merges.size() > INT32_MAX) {
    return corrupt(tables, "more than 2^31 tokens or merges");
  }
  alphabet_ = tables.alphabet;
  byte_fallback_ = tables.byte_fallback;
  fuse_unknown_ = tables.fuse_unknown;
  unknown_id_ = tables.unknown_id;
  num_tokens_ = static_cast<int32_t>(tables.tokens.size());
  if (unknown_id_ && (*unknown_id_ < 0 || *unknown_id_ >= num_tokens_)) {
    return corrupt(tables, str_format("unknown token %d is not among the %d tokens", *unknown_id_,
                                      num_tokens_));
  }
  TokenIds ids;
  ids.reserve(tables.tokens.size());
  TRIPTYCH_RETURN_IF_ERROR(index_tokens(tables, ids));
  index_symbols(tables, ids);
  TRIPTYCH_RETURN_IF_ERROR(tables.scores.empty() ? add_merges(tables, ids)
                                                 : add_scores(tables, ids));
  if (tables.ignore_merges) index_whole_pieces(ids);
  return {};
}

Status BpeModel::index_tokens(const BpeTables& tables, TokenIds& ids) const {
  for (size_t id = 0; id < tables.tokens.size(); ++id) {
    const std::string& token = tables.tokens[id];
    if (token.empty() || ids.emplace(token, static_cast<int32_t>(id)).second) continue;
    return corrupt(tables, "token \"" + token + "\" has the ids " + std::to_string(ids.at(token)) +
                               " and " + std::to_string(id));
  }
  for (const AddedToken& token : tables.added_tokens) {
    if (!token.in_model) ids.erase(tables.tokens[static_cast<size_t>(token.id)]);
  }
  return {};
}

void BpeModel::index_symbols(const BpeTables& tables, const TokenIds& ids) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<uint8_t>(byte);
    const auto found = ids.find(alphabet_ == BpeAlphabet::kBytes ? encode_byte(value)
                                                                 : str_format("<0x%02X>", byte));
    byte_ids_[value] = found == ids.end() ? -1 : found->second;
  }
  if (alphabet_ == BpeAlphabet::kBytes) return;
  for (const auto& [token, id] : ids) {
    if (!is_valid_utf8(token)) continue;  // no text has it
    const CodePoint point = first_code_point(token);
    if (point.length == token.size()) point_ids_.emplace(point.value, id);
  }
  if (tables.scores.empty()) return;
  for (const std::string& token : tables.tokens) add_point_symbols(token);
}

void BpeModel::add_point_symbols(const std::string& token) {
  if (!is_valid_utf8(token)) return;
  for (size_t begin = 0; begin < token.size();) {
    const CodePoint point = first_code_point(std::string_view(token).substr(begin));
    const auto id = num_tokens_ + static_cast<int32_t>(extra_symbols_.size());
    if (point_ids_.emplace(point.value, id).second) {
      extra_symbols_.push_back(token.substr(begin, point.length));
    }
    begin += point.length;
  }
}

void BpeModel::index_whole_pieces(const TokenIds& ids) {
  whole_texts_.reserve(ids.size());  // keeps the keys valid
  for (const auto& [token, id] : ids) {
    const std::string text(token);
    whole_texts_.push_back(alphabet_ == BpeAlphabet::kBytes ? decode_alphabet(text).value_or(text)
                                                            : text);
    whole_pieces_.emplace(whole_texts_.back(), id);
  }
}

Status BpeModel::add_merges(const BpeTables& tables, const TokenIds& ids) {
  merges_ = MergeTable(tables.merges.size());
  int32_t rank = 0;
  for (const auto& [left, right] : tables.merges) {
    const std::string merged = left + right;
    for (const std::string* part : {&left, &right, &merged}) {
      if (ids.contains(*part)) continue;
      return corrupt(tables, "merge " + std::to_string(rank) + ", \"" + left + " " + right +
                                 "\", needs the token \"" + *part +
                                 "\", which is not in the vocabulary");
    }
    merges_.insert(ids.at(left), ids.at(right), rank++, ids.at(merged));
  }
  return {};
}

Status BpeModel::add_scores(const BpeTables& tables, const TokenIds& ids) {
  if (tables.scores.size() != tables.tokens.size()) {
    return corrupt(tables, str_format("%zu scores, expected one for each of %zu tokens",
                                      tables.scores.size(), tables.tokens.size()));
  }
  const bool ordered = std::none_of(tables.scores.begin(), tables.scores.end(),
                                    [](double score) { return std::isnan(score); });
  if (!ordered) return corrupt(tables, "a score is not a number");
  TokenIds symbols = ids;
  for (size_t i = 0; i < extra_symbols_.size(); ++i) {
    symbols.emplace(extra_symbols_[i], num_tokens_ + static_cast<int32_t>(i));
  }
  struct Split {
    int32_t left;
    int32_t right;
    int32_t merged;
  };
  std::vector<Split> splits;
  for (const auto& [token, id] : ids) {
    if (token.size() > kMaxScoredBytes) {
      return fail(ErrorCode::kUnsupported,
                  str_format("token %d has %zu bytes, expected at most %zu", id, token.size(),
                             kMaxScoredBytes),
                  tables.where);
    }
    for (size_t middle = 1; middle < token.size(); ++middle) {
      const auto left = symbols.find(token.substr(0, middle));
      if (left == symbols.end()) continue;
      const auto right = symbols.find(token.substr(middle));
      if (right != symbols.end()) splits.push_back({left->second, right->second, id});
    }
  }
  const std::vector<int32_t> ranks = ranks_of(tables.scores);
  merges_ = MergeTable(splits.size());
  for (const Split& split : splits) {
    merges_.insert(split.left, split.right, ranks[static_cast<size_t>(split.merged)], split.merged);
  }
  return {};
}

void BpeModel::push_symbol(Scratch& scratch, int32_t id) const {
  const auto position = static_cast<int32_t>(scratch.symbols.size());
  scratch.symbols.push_back({id, position - 1, position + 1});
}

void BpeModel::push_byte_symbols(std::string_view piece, Scratch& scratch) const {
  bool after_unknown = false;
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      push_symbol(scratch, id);
    } else if (unknown_id_ && !(after_unknown && fuse_unknown_)) {
      push_symbol(scratch, *unknown_id_);
    }
    after_unknown = id < 0;
  }
}

bool BpeModel::has_bytes_of(std::string_view character) const {
  return byte_fallback_ && std::all_of(character.begin(), character.end(), [&](char c) {
           return byte_ids_[static_cast<uint8_t>(c)] >= 0;
         });
}

/// An unknown token waits for the next known character, as in `tokenizers`: bytes that come between
/// stand before it.
void BpeModel::push_character_symbols(std::string_view piece, Scratch& scratch) const {
  bool unknown_waits = false;
  const auto flush = [&] {
    if (unknown_waits) push_symbol(scratch, *unknown_id_);
    unknown_waits = false;
  };
  while (!piece.empty()) {
    const CodePoint point = first_code_point(piece);
    const std::string_view character = piece.substr(0, point.length);
    piece.remove_prefix(point.length);
    if (const auto found = point_ids_.find(point.value); found != point_ids_.end()) {
      flush();
      push_symbol(scratch, found->second);
    } else if (has_bytes_of(character)) {
      for (const char c : character) push_symbol(scratch, byte_ids_[static_cast<uint8_t>(c)]);
    } else if (unknown_id_) {
      if (!fuse_unknown_) flush();
      unknown_waits = true;
    }
  }
  flush();
}

void BpeModel::push_candidate(Scratch& scratch, int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return;
  const int32_t left_id = scratch.symbols[static_cast<size_t>(left)].id;
  const int32_t right_id = scratch.symbols[static_cast<size_t>(right)].id;
  const MergeTable::Merge* merge = merges_.find(left_id, right_id);
  if (merge == nullptr) return;
  scratch.heap.push({merge->rank, left, left_id, right_id, merge->merged});
}

void BpeModel::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const {
  if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
    out.push_back(whole->second);
    return;
  }
  scratch.symbols.clear();
  if (alphabet_ == BpeAlphabet::kBytes) {
    push_byte_symbols(piece, scratch);
  } else {
    push_character_symbols(piece, scratch);
  }
  if (scratch.symbols.empty()) return;
  scratch.symbols.back().next = -1;
  merge_all(scratch);
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next) {
    emit(scratch.symbols[static_cast<size_t>(i)].id, out);
  }
}

/// Applies merges in the order of their ranks, leftmost first: O(n log n) with stale candidates
/// left in the heap and recognised by the ids they were made from.
void BpeModel::merge_all(Scratch& scratch) const {
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

void BpeModel::emit(int32_t id, std::vector<int32_t>& out) const {
  if (id < num_tokens_) {
    out.push_back(id);
    return;
  }
  const std::string& character = extra_symbols_[static_cast<size_t>(id - num_tokens_)];
  if (has_bytes_of(character)) {
    for (const char c : character) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  } else if (unknown_id_) {
    out.push_back(*unknown_id_);
  }
}

}  // namespace triptych
