// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <xxhash.h>

#include "base/mapped_file.h"
#include "base/strings.h"

namespace triptych {

std::string content_hash(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return str_format("%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                    static_cast<unsigned long long>(hash.low64));
}

std::string content_hash(std::string_view text) {
  return content_hash(std::as_bytes(std::span(text.data(), text.size())));
}

Result<std::string> file_hash(const std::filesystem::path& path) {
  TRIPTYCH_TRY(const MappedFile file, MappedFile::open(path));
  return content_hash(file.bytes());
}

}  // namespace triptych
