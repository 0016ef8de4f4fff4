// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The byte-to-unicode alphabet of GPT-2: how vocabularies write arbitrary bytes as printable text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace triptych {

/// Code point of each byte: printable Latin-1 bytes stand for themselves, the other 68 follow from
/// U+0100 in order. Source: Radford et al. 2019, encoder.py.
[[nodiscard]] constexpr std::array<uint16_t, 256> byte_alphabet() {
  std::array<uint16_t, 256> points{};
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    points[byte] = printable ? byte : next++;
  }
  return points;
}

/// One byte in the alphabet, as UTF-8.
[[nodiscard]] std::string encode_byte(uint8_t byte);
/// The bytes that `text` stands for; nothing if it holds a character outside the alphabet.
[[nodiscard]] std::optional<std::string> decode_alphabet(std::string_view text);

/// `text` with each maximal part that is not UTF-8 replaced by U+FFFD (Unicode 15, section 3.9,
/// "U+FFFD Substitution of Maximal Subparts").
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

}  // namespace triptych
