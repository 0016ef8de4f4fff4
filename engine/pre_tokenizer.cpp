// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/normalizer.h"
#include "engine/split_patterns.h"

namespace triptych {
namespace {

using Piece = Pieces::Piece;

/// Matches and the gaps between them, in order.
void split_piece(const Regex& pattern, Piece piece, std::vector<Piece>& out) {
  size_t end = 0;
  const auto push = [&](size_t first, size_t last) {
    if (first >= last) return;
    out.push_back({piece.text.substr(first, last - first), piece.at_start && first == 0});
  };
  for (const auto& [first, last] : pattern.find_all(piece.text)) {
    push(end, first);
    push(first, last);
    end = last;
  }
  push(end, piece.text.size());
}

}  // namespace

Result<PreTokenizer> PreTokenizer::make(std::span<const PreTokenizerStep> steps,
                                        const std::string& where) {
  PreTokenizer pre_tokenizer;
  for (const PreTokenizerStep& step : steps) {
    Step made{step, std::nullopt};
    if (step.kind == PreTokenizerStep::Kind::kSplit) {
      TRIPTYCH_TRY(made.regex, compile_tokenizer_pattern(step.pattern, where));
    }
    pre_tokenizer.steps_.push_back(std::move(made));
  }
  return pre_tokenizer;
}

void PreTokenizer::prefix_space(Pieces& pieces) {
  for (Piece& piece : pieces.list) {
    if (piece.text[0] == ' ') continue;
    piece.text = pieces.owned.emplace_back(" " + std::string(piece.text));
  }
}

void PreTokenizer::metaspace(const PreTokenizerStep& step, Pieces& pieces) {
  using Prepend = PreTokenizerStep::Prepend;
  std::vector<Piece> cut;
  for (const Piece& piece : pieces.list) {
    std::string& text = pieces.owned.emplace_back(replace_all(piece.text, " ", step.pattern));
    const bool wanted =
        step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && piece.at_start);
    if (wanted && !text.starts_with(step.pattern)) text.insert(0, step.pattern);
    const std::string_view all = text;
    size_t begin = 0;
    while (begin < all.size()) {
      const size_t end = step.split ? all.find(step.pattern, begin + 1) : std::string_view::npos;
      cut.push_back({all.substr(begin, end - begin), piece.at_start && begin == 0});
      begin = std::min(end, all.size());
    }
  }
  pieces.list = std::move(cut);
}

Pieces PreTokenizer::cut(std::string_view text, bool at_start) const {
  Pieces pieces;
  if (text.empty()) return pieces;
  pieces.list.push_back({text, at_start});
  for (const auto& [step, regex] : steps_) {
    switch (step.kind) {
      case PreTokenizerStep::Kind::kSplit: {
        std::vector<Piece> next;
        next.reserve(pieces.list.size());
        for (const Piece& piece : pieces.list) split_piece(*regex, piece, next);
        pieces.list = std::move(next);
        break;
      }
      case PreTokenizerStep::Kind::kPrefixSpace:
        prefix_space(pieces);
        break;
      case PreTokenizerStep::Kind::kMetaspace:
        metaspace(step, pieces);
        break;
    }
  }
  return pieces;
}

}  // namespace triptych
