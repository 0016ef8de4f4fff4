// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: parse_safetensors(). What it accepts covers the data section, tensor after tensor.
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/safetensors.h"

namespace triptych {
namespace {

void check_tensors(std::span<const std::byte> file) {
  const auto tensors = parse_safetensors(file, "input");
  if (!tensors) return;
  const std::byte* end = nullptr;
  for (const SafetensorsTensor& tensor : *tensors) {
    TRIPTYCH_CHECK(tensor.data.data() >= file.data() &&
                       tensor.data.data() + tensor.data.size() <= file.data() + file.size(),
                   "a tensor outside the file");
    TRIPTYCH_CHECK(end == nullptr || tensor.data.data() == end, "a hole between tensors");
    end = tensor.data.data() + tensor.data.size();
    if (!tensor.dtype) continue;
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    TRIPTYCH_CHECK(elements * dtype_info(*tensor.dtype).block_bytes == std::ssize(tensor.data),
                   "a tensor's bytes do not follow from its shape");
  }
  TRIPTYCH_CHECK(end == nullptr || end == file.data() + file.size(), "bytes after the last tensor");
}

}  // namespace
}  // namespace triptych

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  triptych::check_tensors(std::as_bytes(std::span(data, size)));
  return 0;
}
