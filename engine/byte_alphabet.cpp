// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/byte_alphabet.h"

#include <algorithm>

namespace triptych {
namespace {

constexpr std::array<uint16_t, 256> kAlphabet = byte_alphabet();
constexpr uint16_t kLastPoint = *std::max_element(kAlphabet.begin(), kAlphabet.end());
static_assert(kLastPoint == 0x143);  // 256 + 68 - 1: every point has at most two UTF-8 bytes

constexpr std::array<int16_t, kLastPoint + 1> kByteOfPoint = [] {
  std::array<int16_t, kLastPoint + 1> bytes{};
  bytes.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) bytes[kAlphabet[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

struct Sequence {
  size_t length;  ///< Of the maximal part, valid or not; at least 1.
  bool valid;
};

/// The UTF-8 sequence at the start of `text`, which is not empty.
Sequence first_sequence(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte alone decides on overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size() || at(i) < low || at(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

std::string encode_byte(uint8_t byte) {
  const uint16_t point = kAlphabet[byte];
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

std::optional<std::string> decode_alphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Sequence sequence = first_sequence(text);
    if (!sequence.valid || sequence.length > 2) return std::nullopt;
    const auto lead = static_cast<uint8_t>(text[0]);
    const int point =
        sequence.length == 1 ? lead : (lead & 0x1F) << 6 | (static_cast<uint8_t>(text[1]) & 0x3F);
    if (point > kLastPoint || kByteOfPoint[static_cast<size_t>(point)] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfPoint[static_cast<size_t>(point)]);
    text.remove_prefix(sequence.length);
  }
  return bytes;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const Sequence sequence = first_sequence(text);
    clean += sequence.valid ? text.substr(0, sequence.length) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(sequence.length);
  }
  return clean;
}

}  // namespace triptych
