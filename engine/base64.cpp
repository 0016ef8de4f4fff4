// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/base64.h"

#include <array>
#include <cstdint>

namespace triptych {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kInvalid = 64;

constexpr std::array<uint8_t, 256> kValues = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kInvalid);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  return values;
}();

}  // namespace

std::string encode_base64(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t word = 0;
    for (size_t i = 0; i < 3; ++i) {
      word = word << 8 | (at + i < bytes.size() ? static_cast<uint32_t>(bytes[at + i]) : 0u);
    }
    for (size_t i = 0; i < 4; ++i) {
      const bool padding = at + i > bytes.size();  // i sextets need i bytes, but the first
      text += padding ? '=' : kAlphabet[word >> (18 - 6 * i) & 63];
    }
  }
  return text;
}

std::optional<std::vector<std::byte>> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::vector<std::byte> bytes(text.size() / 4 * 3);
  for (size_t at = 0, out = 0; at < text.size(); at += 4, out += 3) {
    const bool last = at + 4 == text.size();
    uint32_t word = 0;
    for (size_t i = 0; i < 4; ++i) {
      const bool pad = last && i >= 4 - padding;
      const uint8_t value = pad ? 0 : kValues[static_cast<uint8_t>(text[at + i])];
      if (value == kInvalid) return std::nullopt;
      word = word << 6 | value;
    }
    for (size_t i = 0; i < 3; ++i) bytes[out + i] = static_cast<std::byte>(word >> (16 - 8 * i));
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace triptych
