// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// TimeClass: the exclusive classes that a token's time is divided into.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace triptych {

/// Ordered by priority: where records overlap, the earlier class owns the time. Compute comes
/// first, so that communication under compute is hidden and only exposed communication counts.
/// `coordination` is the sum of kCommTransfer, kCommWait, kSync, kLaunchGap and kHostWait.
enum class TimeClass : uint8_t {
  kGemm,
  kAttention,
  kNorm,
  kElementwise,
  kSampling,
  kQuantize,
  kCommTransfer,
  kCommWait,
  kSync,
  kMemcpy,
  kUnclassified,  ///< A record that no rule names. Shown, never folded into another class.
  kLaunchGap,     ///< Inside a phase, no record on the device.
  kHostWait,      ///< Between phases: the device waits for the host to decide what is next.
};

inline constexpr std::array<std::string_view, 13> kTimeClassNames = {
    "gemm",      "attention", "norm",   "elementwise",  "sampling",   "quantize", "comm_transfer",
    "comm_wait", "sync",      "memcpy", "unclassified", "launch_gap", "host_wait"};
inline constexpr size_t kNumTimeClasses = kTimeClassNames.size();

[[nodiscard]] constexpr bool is_compute(TimeClass c) { return c <= TimeClass::kQuantize; }
[[nodiscard]] constexpr bool is_coordination(TimeClass c) {
  return c == TimeClass::kCommTransfer || c == TimeClass::kCommWait || c == TimeClass::kSync ||
         c == TimeClass::kLaunchGap || c == TimeClass::kHostWait;
}

}  // namespace triptych
