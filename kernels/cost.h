// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// KernelCost: what a call must move and compute. Joined with measured time it gives the floor.
#pragma once

#include <cstdint>

namespace triptych {

/// Compulsory traffic and arithmetic of one call; a multiply-add counts as two operations.
struct KernelCost {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t flops = 0;

  [[nodiscard]] constexpr int64_t bytes() const { return bytes_read + bytes_written; }
  constexpr KernelCost& operator+=(const KernelCost& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    flops += other.flops;
    return *this;
  }
};

}  // namespace triptych
