// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Normalizer: the changes that a tokenizer makes to a text before it cuts it into pieces.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/regex.h"
#include "base/result.h"
#include "engine/bpe_tables.h"

namespace triptych {

class Normalizer {
 public:
  /// Errors: kInvalidArgument (bad regular expression); those of check_growth().
  [[nodiscard]] static Result<Normalizer> make(std::span<const NormalizerStep> steps,
                                               const std::string& where);
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// All steps in order. Precondition: `text` is UTF-8.
  [[nodiscard]] std::string apply(std::string text) const;

 private:
  struct Step {
    NormalizerStep step;
    std::optional<Regex> regex;
  };
  std::vector<Step> steps_;
};

/// Replacements one after another multiply: forty that double each character would fill any
/// memory. Those of known tokenizers make a text three times as long.
inline constexpr size_t kMaxGrowth = 1024;
/// `factor` times the growth by one replacement of at least `pattern_bytes` bytes. Errors:
/// kUnsupported beyond kMaxGrowth.
[[nodiscard]] Status check_growth(size_t& factor, size_t pattern_bytes, std::string_view content,
                                  const std::string& where);

/// Every occurrence of `pattern`, from the left and none overlapping, becomes `content`.
[[nodiscard]] std::string replace_all(std::string_view text, std::string_view pattern,
                                      std::string_view content);

}  // namespace triptych
