// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// PreTokenizer: cuts a text into the pieces that merges do not cross.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/regex.h"
#include "base/result.h"
#include "engine/bpe_tables.h"

namespace triptych {

/// Pieces of a text, none empty, in order. Views into the text, or into `owned`.
struct Pieces {
  struct Piece {
    std::string_view text;
    bool at_start = false;  ///< Starts where the whole text starts.
  };
  std::vector<Piece> list;
  std::deque<std::string> owned;  ///< A deque: its strings stay where they are.
};

class PreTokenizer {
 public:
  /// Errors: kInvalidArgument (bad regular expression).
  [[nodiscard]] static Result<PreTokenizer> make(std::span<const PreTokenizerStep> steps,
                                                 const std::string& where);
  /// `at_start`: whether `text`, UTF-8, begins what the tokenizer was given. `text` must outlive
  /// the pieces.
  [[nodiscard]] Pieces cut(std::string_view text, bool at_start) const;

 private:
  struct Step {
    PreTokenizerStep step;
    std::optional<Regex> regex;
  };
  static void prefix_space(Pieces& pieces);
  static void metaspace(const PreTokenizerStep& step, Pieces& pieces);

  std::vector<Step> steps_;
};

}  // namespace triptych
