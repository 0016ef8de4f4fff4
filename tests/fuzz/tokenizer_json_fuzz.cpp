// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: load_tokenizer_json(), then encode and decode with what it made.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/tokenizer.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static triptych::InputFile file;
  file.write(std::span(data, size));
  const auto tokenizer = triptych::load_tokenizer_json(file.path());
  if (!tokenizer) return 0;
  triptych::check_tokenizer(**tokenizer, triptych::kSampleText);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr size_t kTailBytes = 64;
  triptych::check_tokenizer(**tokenizer, text.substr(size - std::min(size, kTailBytes)));
  return 0;
}
