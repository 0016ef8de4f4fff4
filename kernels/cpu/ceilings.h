// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most: the denominators of every "ratio to the floor".
#pragma once

#include <cstdint>

#include "kernels/cpu/thread_pool.h"

namespace triptych::cpu {

struct Ceilings {
  double read_bytes_per_s =
      0;                       ///< Best of the repeats, read-only, buffer far above the last cache.
  double f32_flops_per_s = 0;  ///< Multiply-adds in registers, counted as two.
};

/// Takes about a second. Uses all threads of the pool and a buffer of `buffer_bytes`.
[[nodiscard]] Ceilings measure_ceilings(ThreadPool& pool, int64_t buffer_bytes = 256LL << 20);

}  // namespace triptych::cpu
