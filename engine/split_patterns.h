// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How public byte-level tokenizers cut text into pieces before merging.
#pragma once

#include <string>
#include <string_view>

#include "base/regex.h"
#include "base/result.h"

namespace triptych {

/// GPT-2 (Radford et al. 2019, encoder.py) and the `ByteLevel` pre-tokenizer of `tokenizers`.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Llama 3, from its published tokenizer.json: numbers in groups of three.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// Qwen 2, from its published tokenizer.json: as Llama 3, but single digits.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// One digit, as the `Digits` pre-tokenizer with individual_digits cuts.
inline constexpr std::string_view kDigitPattern = R"(\p{N})";

/// Compiles a pattern as the Rust and Oniguruma engines of `tokenizers` read it: `\s` is the
/// property White_Space and `\w` that of Annex C of Unicode Technical Standard 18, where PCRE2 has
/// its own. Errors: kInvalidArgument naming the pattern.
[[nodiscard]] Result<Regex> compile_tokenizer_pattern(std::string_view pattern,
                                                      const std::string& where);

}  // namespace triptych
