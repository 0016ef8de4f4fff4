// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Numbers for people: durations, sizes and rates with their unit. GB/s is 1e9 B/s, GiB is 2^30 B.
#pragma once

#include <cstdint>
#include <string>

namespace triptych {

/// "12.3 us", "4.56 ms", "7.89 s": three significant digits, unit chosen by magnitude.
[[nodiscard]] std::string format_duration_ns(double nanoseconds);
/// "512 B", "1.50 KiB", "269 MiB", "1.25 GiB".
[[nodiscard]] std::string format_bytes(double bytes);
/// `digits` significant digits without an exponent: format_significant(0.012345, 3) = "0.0123".
[[nodiscard]] std::string format_significant(double value, int digits);

/// Monotonic time in ns (std::chrono::steady_clock). The one clock of timed and traced passes.
[[nodiscard]] int64_t now_ns();
/// Wall-clock time as "2026-01-31T12:34:56Z".
[[nodiscard]] std::string utc_now();

}  // namespace triptych
