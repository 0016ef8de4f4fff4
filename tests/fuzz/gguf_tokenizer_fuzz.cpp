// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the tokenizer of a GGUF file, without the tensors that a checkpoint would need.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/gguf.h"
#include "engine/gguf_tokenizer.h"
#include "tests/fuzz/check_tokenizer.h"

namespace triptych {
namespace {

void check_file(std::span<const std::byte> bytes) {
  const auto file = Gguf::parse(bytes, "input");
  if (!file) return;
  constexpr int64_t kVocabSize = 1 << 20;  // more than an input has tokens
  const auto tokenizer = load_gguf_tokenizer(*file, kVocabSize);
  if (!tokenizer || *tokenizer == nullptr) return;
  check_tokenizer(**tokenizer, kSampleText);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr size_t kTailBytes = 64;
  check_tokenizer(**tokenizer, text.substr(text.size() - std::min(text.size(), kTailBytes)));
}

}  // namespace
}  // namespace triptych

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  triptych::check_file(std::as_bytes(std::span(data, size)));
  return 0;
}
