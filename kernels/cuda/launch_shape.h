// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sizes of grids and blocks.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace triptych {

[[nodiscard]] constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Most blocks along x, and along y.
inline constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxGridY = 65535;

/// Threads of a block that walks `work` items: whole warps, at most `most`.
[[nodiscard]] constexpr unsigned block_threads(int64_t work, int64_t most = 256) {
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(work, 32) * 32, 32, most));
}

/// Blocks along x for `columns` items of a row, one a thread; rows along y, which kernels stride.
[[nodiscard]] inline dim3 row_grid(int64_t columns, unsigned threads, int64_t rows) {
  return dim3(static_cast<unsigned>(ceil_div(columns, threads)),
              static_cast<unsigned>(std::min(rows, kMaxGridY)));
}

}  // namespace triptych
