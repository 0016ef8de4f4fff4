// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Descriptions of row-major matrices to the copy engine of sm_90.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/result.h"

namespace triptych {

/// A matrix [rows, k] of T (__half or __nv_bfloat16), k a multiple of 64, as {64 columns, rows,
/// k / 64}. A box has `box_rows` rows of `box_groups` times 64 columns: first 128 bytes of each
/// row, swizzled so that tensor cores read them without bank conflicts, then the next 128 bytes of
/// each. Errors: kUnsupported if the driver cannot.
template <class T>
[[nodiscard]] Result<CUtensorMap> make_matrix_map(const T* data, int64_t rows, int64_t k,
                                                  int box_rows, int box_groups);

/// The same memory as {64 columns, rows, 2 halves, k / 64}: a box is a tile of the streaming
/// kernel, 8 rows and the 8 rows `second` rows further, which come together. In a box the 16 rows
/// lie like those of make_matrix_map. `second` is 8, or the distance of the rows of a pair
/// (StreamTiles).
template <class T>
[[nodiscard]] Result<CUtensorMap> make_tile_map(const T* data, int64_t rows, int64_t k, int second,
                                                int box_groups);

}  // namespace triptych
