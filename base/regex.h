// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Regex: PCRE2 with Unicode classes. std::regex knows no \p{L} and recurses on long names.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace triptych {

class Regex {
 public:
  /// Compiles `pattern` in UTF mode with Unicode properties, without `\C`, which would match a part
  /// of a character. Errors: kInvalidArgument with the offset of the fault.
  [[nodiscard]] static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// True if the pattern matches anywhere in `text`. Text that is not UTF-8 never matches, nor does
  /// a search that goes beyond the limits of PCRE2 (10^7 backtracks, 20 MB).
  [[nodiscard]] bool search(std::string_view text) const;
  /// Byte range [first, second) of the first match at or after `offset`, if any.
  [[nodiscard]] std::optional<std::pair<size_t, size_t>> find(std::string_view text,
                                                              size_t offset) const;
  /// Byte ranges of all matches from left to right, none overlapping; the search goes on one code
  /// point after an empty match. The text is checked for UTF-8 once, so time is linear in its
  /// length where the pattern allows it; find() in a loop is quadratic.
  [[nodiscard]] std::vector<std::pair<size_t, size_t>> find_all(std::string_view text) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace triptych
