// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The runtime axis of a stack: a set of features, each a switch of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace triptych {

enum class RuntimeFeature : uint8_t {
  kGraph,    ///< A decode step is one CUDA graph. Not on the CPU; needs kPagedKv and kArena.
  kFused,    ///< residual+norm, QKV, gate-up+SwiGLU, RoPE+KV append are one call each.
  kPagedKv,  ///< KV cache in fixed-size pages; off: contiguous, grown by concatenation.
  kContinuousBatching,  ///< A finished sequence is replaced at once; off: static batches.
  kDeviceSampling,      ///< The next token is chosen where the logits are; off: logits are copied.
  kArena,               ///< Results live in one reused arena; off: one allocation per result.
  kChunkedPrefill,      ///< Prompts are read in chunks beside decoding; off: whole, on their own.
  kOverlap,  ///< The next step is issued before the tokens of this one are delivered. Not on the
             ///< CPU; needs kDeviceSampling.
};

inline constexpr std::array<std::string_view, 8> kRuntimeFeatureNames = {
    "graph",           "fused", "paged_kv",        "continuous_batching",
    "device_sampling", "arena", "chunked_prefill", "overlap"};

enum class DeviceKind : uint8_t { kCpu, kCuda };

class RuntimeFeatures {
 public:
  [[nodiscard]] bool has(RuntimeFeature feature) const {
    return (bits_ >> static_cast<int>(feature) & 1u) != 0;
  }
  void set(RuntimeFeature feature) { bits_ |= 1u << static_cast<int>(feature); }
  friend bool operator==(const RuntimeFeatures&, const RuntimeFeatures&) = default;

  /// All features off: one operation at a time, nothing reused.
  [[nodiscard]] static RuntimeFeatures eager() { return {}; }
  /// Every feature that `device` has.
  [[nodiscard]] static RuntimeFeatures fast(DeviceKind device);
  /// "eager", "fast", or names joined by '+' ("fused+arena"). Errors: kInvalidArgument with the
  /// nearest name, or naming what a feature needs; kUnsupported for a feature that the device does
  /// not have.
  [[nodiscard]] static Result<RuntimeFeatures> parse(std::string_view text, DeviceKind device);
  /// Names joined by '+' in the order of the enum; "eager" for none.
  [[nodiscard]] std::string to_string() const;

 private:
  uint32_t bits_ = 0;
};

}  // namespace triptych
