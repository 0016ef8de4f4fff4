// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <string>

#include "base/handle.h"
#include "base/strings.h"

namespace triptych {

struct Regex::Impl {
  UniqueHandle<pcre2_code*, pcre2_code_free> code;
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  UniqueHandle<pcre2_code*, pcre2_code_free> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return fail(ErrorCode::kInvalidArgument,
                str_format("bad regular expression at offset %zu: %s", static_cast<size_t>(offset),
                           reinterpret_cast<const char*>(text.data())));
  }
  // Without the just-in-time compiler matching is slower and gives the same answer.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  return Regex(std::make_unique<Impl>(Impl{std::move(code)}));
}

bool Regex::search(std::string_view text) const { return find(text, 0).has_value(); }

std::optional<std::pair<size_t, size_t>> Regex::find(std::string_view text, size_t offset) const {
  const UniqueHandle<pcre2_match_data*, pcre2_match_data_free> match(
      pcre2_match_data_create_from_pattern(impl_->code.get(), nullptr));
  const int found = pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(), offset, 0, match.get(), nullptr);
  if (found < 0) return std::nullopt;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
  return std::pair<size_t, size_t>{bounds[0], bounds[1]};
}

}  // namespace triptych
