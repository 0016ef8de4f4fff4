// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <array>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/strings.h"

namespace triptych {

std::string format_significant(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : (value < 0 ? "-inf" : "inf");
  if (value == 0.0) return "0";
  // Round first: 9.996 with three digits is 10.0, which has one digit more before the point.
  const std::string rounded = str_format("%.*e", digits - 1, value);
  const int exponent = std::stoi(rounded.substr(rounded.find('e') + 1));
  const int decimals = digits - 1 - exponent;
  return str_format("%.*f", decimals > 0 ? decimals : 0, std::stod(rounded));
}

namespace {

struct Unit {
  double size;
  const char* name;
};

template <size_t N>
std::string format_scaled(double value, const std::array<Unit, N>& units) {
  // The largest unit that the rounded value reaches; units are ordered from large to small.
  for (const Unit& unit : units) {
    if (std::abs(value) >= unit.size * 0.9995) {
      return format_significant(value / unit.size, 3) + " " + unit.name;
    }
  }
  return format_significant(value / units.back().size, 3) + " " + units.back().name;
}

}  // namespace

std::string format_duration_ns(double nanoseconds) {
  constexpr std::array<Unit, 4> kUnits = {{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}}};
  return format_scaled(nanoseconds, kUnits);
}

std::string format_bytes(double bytes) {
  constexpr std::array<Unit, 4> kUnits = {
      {{1024.0 * 1024 * 1024, "GiB"}, {1024.0 * 1024, "MiB"}, {1024.0, "KiB"}, {1, "B"}}};
  return format_scaled(bytes, kUnits);
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace triptych
