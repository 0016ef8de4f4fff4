// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a GGUF file, read as a container and opened as a checkpoint. Tensors of both lie in
// the file, and each byte of a checkpoint can be read.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>

#include "engine/checkpoint.h"
#include "engine/gguf.h"
#include "engine/model_tensors.h"
#include "engine/tokenizer.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input_file.h"

namespace triptych {
namespace {

/// Every typed lookup of `key`; each is a value or an error, whatever the type in the file is.
void look_up(const Gguf& file, std::string_view key) {
  const bool absent = file.find(key) == nullptr;
  const auto integer = file.integer(key);
  const auto number = file.number(key);
  const auto text = file.string(key);
  const auto texts = file.strings(key);
  TRIPTYCH_CHECK(!absent || (integer && !*integer && texts && !*texts), "a value of no key");
  TRIPTYCH_CHECK(!(integer && *integer) || (number && *number), "an integer that is no number");
  TRIPTYCH_CHECK(!(text && *text) || !integer, "a text that is an integer");
  static_cast<void>(file.boolean(key));
  static_cast<void>(file.integers(key));
  static_cast<void>(file.numbers(key));
}

void check_container(std::span<const std::byte> bytes) {
  const auto file = Gguf::parse(bytes, "input");
  if (!file) return;
  for (const std::string_view key :
       {"general.architecture", "general.alignment", "llama.block_count", "llama.rope.freq_base",
        "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "k"}) {
    look_up(*file, key);
  }
  for (const GgufTensor& tensor : file->tensors()) {
    TRIPTYCH_CHECK(tensor.data.data() >= bytes.data() &&
                       tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size(),
                   "a tensor outside the file");
    int64_t elements = 1;
    for (const int64_t dim : tensor.shape()) elements *= dim;
    const DTypeInfo& dtype = dtype_info(tensor.dtype);
    TRIPTYCH_CHECK(elements / dtype.block_elements * dtype.block_bytes == std::ssize(tensor.data),
                   "a tensor's bytes do not follow from its shape");
  }
}

void check_checkpoint(std::span<const uint8_t> bytes) {
  static InputFile file;
  file.write(bytes);
  const auto checkpoint = open_gguf(file.path());
  if (!checkpoint) return;
  TRIPTYCH_CHECK(validate((*checkpoint)->config(), "").has_value(), "a config that is not valid");
  int64_t total = 0;
  unsigned sum = 0;
  const Status read =
      for_each_tensor((*checkpoint)->config(), [&](const TensorSpec& spec) -> Status {
        TRIPTYCH_TRY(const WeightView view, (*checkpoint)->tensor(spec.name));
        TRIPTYCH_CHECK(view.rows == spec.rows && view.columns == spec.columns, "another shape");
        total += view.bytes();
        for (int64_t i = 0; i < view.bytes(); ++i) sum += static_cast<unsigned>(view.data[i]);
        return {};
      });
  TRIPTYCH_CHECK(read.has_value(), "an opened checkpoint has every tensor");
  TRIPTYCH_CHECK(total <= std::ssize(bytes) && sum <= 255u * static_cast<uint64_t>(total),
                 "more tensors than the file has bytes");
  const auto tokenizer = (*checkpoint)->tokenizer();
  if (tokenizer != nullptr) check_tokenizer(*tokenizer, kSampleText);
}

}  // namespace
}  // namespace triptych

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  triptych::check_container(std::as_bytes(bytes));
  triptych::check_checkpoint(bytes);
  return 0;
}
