// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any text through tokenizers that lose nothing. A byte-level vocabulary with all
// bytes and a SentencePiece one with byte fallback give back every UTF-8 text.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "engine/bpe_tables.h"
#include "engine/byte_alphabet.h"
#include "engine/split_patterns.h"
#include "tests/fuzz/check_tokenizer.h"

namespace triptych {
namespace {

std::shared_ptr<const Tokenizer> make(BpeTables tables) {
  auto tokenizer = make_bpe_tokenizer(std::move(tables));
  TRIPTYCH_CHECK(tokenizer.has_value(), tokenizer.error().to_string());
  return *std::move(tokenizer);
}

std::shared_ptr<const Tokenizer> byte_level(std::string_view pattern) {
  BpeTables tables;
  for (int byte = 0; byte < 256; ++byte) {
    tables.tokens.push_back(encode_byte(static_cast<uint8_t>(byte)));
  }
  const std::string space = encode_byte(' ');
  for (const auto& [left, right] : {std::pair<std::string, std::string>{"t", "h"},
                                    {"th", "e"},
                                    {space, "the"},
                                    {"a", "a"},
                                    {"aa", "aa"},
                                    {space, space},
                                    {"1", "2"}}) {
    tables.merges.emplace_back(left, right);
    tables.tokens.push_back(left + right);
  }
  tables.tokens.emplace_back("<s>");
  tables.added_tokens.push_back({.id = static_cast<int32_t>(tables.tokens.size()) - 1});
  tables.pre_tokenizer.push_back({.pattern = std::string(pattern)});
  tables.where = "byte level";
  return make(std::move(tables));
}

std::shared_ptr<const Tokenizer> sentencepiece() {
  BpeTables tables;
  tables.alphabet = BpeAlphabet::kCharacters;
  const std::string space = "\u2581";
  tables.tokens = {"<unk>", "<s>", space, "t", "h", "e", "th", "the", space + "the", "\u00e9"};
  for (int byte = 0; byte < 256; ++byte) tables.tokens.push_back(str_format("<0x%02X>", byte));
  for (size_t i = 0; i < tables.tokens.size(); ++i) tables.scores.push_back(static_cast<double>(i));
  tables.added_tokens = {{.id = 0}, {.id = 1}};
  tables.unknown_id = 0;
  tables.byte_fallback = true;
  using Kind = NormalizerStep::Kind;
  tables.normalizer = {{.kind = Kind::kPrepend, .content = space},
                       {.kind = Kind::kReplace, .pattern = " ", .content = space}};
  tables.decoder.replacements = {{space, " "}};
  tables.decoder.byte_fallback = true;
  tables.decoder.strip_start = 1;
  tables.where = "sentencepiece";
  return make(std::move(tables));
}

void check_round_trip(const Tokenizer& tokenizer, std::string_view text, bool promised) {
  check_tokenizer(tokenizer, text);
  if (!promised || !is_valid_utf8(text)) return;
  TRIPTYCH_CHECK(tokenizer.decode(tokenizer.encode(text)) == text, "the text did not come back");
}

}  // namespace
}  // namespace triptych

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triptych;
  static const auto gpt2 = byte_level(kGpt2Pattern);
  static const auto llama3 = byte_level(kLlama3Pattern);
  static const auto spm = sentencepiece();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_round_trip(*gpt2, text, true);
  check_round_trip(*llama3, text, true);
  // U+2581 stands for the space in such a vocabulary, and each text between added tokens gets one.
  const bool own = text.find("\u2581") == std::string_view::npos &&
                   text.find("<s>") == std::string_view::npos &&
                   text.find("<unk>") == std::string_view::npos;
  check_round_trip(*spm, text, own);
  return 0;
}
