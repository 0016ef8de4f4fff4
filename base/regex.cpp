// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/handle.h"
#include "base/strings.h"

namespace triptych {

struct Regex::Impl {
  UniqueHandle<pcre2_code*, pcre2_code_free> code;
};

namespace {

std::optional<std::pair<size_t, size_t>> match(const pcre2_code* code, std::string_view text,
                                               size_t offset, uint32_t options) {
  // One pair of bounds is all that is asked for, so one block a thread serves every pattern.
  thread_local const UniqueHandle<pcre2_match_data*, pcre2_match_data_free> data(
      pcre2_match_data_create(1, nullptr));
  TRIPTYCH_CHECK(data != nullptr, "out of memory");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int found = pcre2_match(code, subject, text.size(), offset, options, data.get(), nullptr);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its state on the heap
    found = pcre2_match(code, subject, text.size(), offset, options | PCRE2_NO_JIT, data.get(),
                        nullptr);
  }
  if (found < 0) return std::nullopt;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  return std::pair<size_t, size_t>{bounds[0], bounds[1]};
}

}  // namespace

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  UniqueHandle<pcre2_code*, pcre2_code_free> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
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
  return match(impl_->code.get(), text, offset, 0);
}

std::vector<std::pair<size_t, size_t>> Regex::find_all(std::string_view text) const {
  std::vector<std::pair<size_t, size_t>> matches;
  if (!is_valid_utf8(text)) return matches;
  size_t offset = 0;
  while (offset <= text.size()) {
    const auto found = match(impl_->code.get(), text, offset, PCRE2_NO_UTF_CHECK);
    if (!found) break;
    matches.push_back(*found);
    offset = found->second;
    if (found->first == found->second) {
      do {
        ++offset;
      } while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
    }
  }
  return matches;
}

}  // namespace triptych
