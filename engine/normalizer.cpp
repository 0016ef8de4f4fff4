// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/normalizer.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "base/unicode.h"
#include "engine/split_patterns.h"

namespace triptych {
namespace {

std::string replace_matches(std::string_view text, const Regex& regex, std::string_view content) {
  std::string result;
  size_t end = 0;
  for (const auto& [first, last] : regex.find_all(text)) {
    if (first == last) continue;  // an empty match replaces nothing
    result += text.substr(end, first - end);
    result += content;
    end = last;
  }
  return result += text.substr(end);
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string result;
  size_t end = 0;
  while (!pattern.empty()) {
    const size_t found = text.find(pattern, end);
    if (found == std::string_view::npos) break;
    result += text.substr(end, found - end);
    result += content;
    end = found + pattern.size();
  }
  return result += text.substr(end);
}

Status check_growth(size_t& factor, size_t pattern_bytes, std::string_view content,
                    const std::string& where) {
  const size_t longer = (content.size() + pattern_bytes - 1) / pattern_bytes;
  factor *= std::max<size_t>(std::min(longer, kMaxGrowth + 1), 1);
  if (factor <= kMaxGrowth) return {};
  return fail(
      ErrorCode::kUnsupported,
      str_format("its replacements can make a text more than %zu times as long", kMaxGrowth),
      where);
}

Result<Normalizer> Normalizer::make(std::span<const NormalizerStep> steps,
                                    const std::string& where) {
  Normalizer normalizer;
  size_t growth = 1;
  for (const NormalizerStep& step : steps) {
    Step made{step, std::nullopt};
    if (step.kind == NormalizerStep::Kind::kReplace && !step.pattern.empty()) {
      TRIPTYCH_RETURN_IF_ERROR(check_growth(growth, step.pattern.size(), step.content, where));
    }
    if (step.kind == NormalizerStep::Kind::kReplaceRegex) {
      TRIPTYCH_RETURN_IF_ERROR(check_growth(growth, 1, step.content, where));
      TRIPTYCH_TRY(made.regex, compile_tokenizer_pattern(step.pattern, where));
    }
    normalizer.steps_.push_back(std::move(made));
  }
  return normalizer;
}

std::string Normalizer::apply(std::string text) const {
  using Kind = NormalizerStep::Kind;
  for (const auto& [step, regex] : steps_) {
    switch (step.kind) {
      case Kind::kNfc:
        text = normalize_unicode(text, UnicodeForm::kNfc);
        break;
      case Kind::kNfd:
        text = normalize_unicode(text, UnicodeForm::kNfd);
        break;
      case Kind::kNfkc:
        text = normalize_unicode(text, UnicodeForm::kNfkc);
        break;
      case Kind::kNfkd:
        text = normalize_unicode(text, UnicodeForm::kNfkd);
        break;
      case Kind::kPrepend:
        if (!text.empty()) text.insert(0, step.content);
        break;
      case Kind::kReplace:
        text = replace_all(text, step.pattern, step.content);
        break;
      case Kind::kReplaceRegex:
        text = replace_matches(text, *regex, step.content);
        break;
    }
  }
  return text;
}

}  // namespace triptych
