// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10: random numbers that are a function of a counter and a key, in 32-bit products
// that host and device have alike.
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace triptych {

struct Philox4x32 {
  uint32_t words[4];
};

/// Ten rounds. Source: Salmon, Moraes, Dror and Shaw 2011, "Parallel Random Numbers: As Easy as
/// 1, 2, 3".
[[nodiscard]] TRIPTYCH_HOST_DEVICE constexpr Philox4x32 philox4x32(Philox4x32 counter,
                                                                   uint64_t key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMultiplier0 * counter.words[0];
    const uint64_t p1 = kMultiplier1 * counter.words[2];
    counter = {
        {static_cast<uint32_t>(p1 >> 32) ^ counter.words[1] ^ key0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ counter.words[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9;  // golden ratio
    key1 += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

}  // namespace triptych
