// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Tensor maps of rows in device memory, for the copy engine of sm_90
// (kernels/common/bulk_copy.cuh).
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace triptych {

/// Rows of `columns` 16-bit numbers that lie back to back from `data` on, as many as an int counts:
/// the map knows no end, so only rows that exist may be copied. It is {64 columns, rows,
/// columns / 64}; a box is `box_rows` rows of all columns, in swizzled pieces of 64 columns.
/// Requires columns % 64 == 0 and `data` aligned to 16 bytes. Errors: cudaErrorNotSupported where
/// the driver is older than CUDA 12, cudaErrorInvalidValue.
[[nodiscard]] cudaError_t make_row_map(const void* data, int64_t columns, unsigned box_rows,
                                       CUtensorMap& map);

}  // namespace triptych
