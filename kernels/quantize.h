// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Round-to-nearest weight quantization into the block types of dtype.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/dtype.h"

namespace triptych {

/// Quantizes one row of `columns` f32 values into `out` (row_bytes(dtype, columns) bytes).
/// kQ4_1 and kQ4_1_G64: m = min, d = (max - min) / 15, both rounded to f16 first, q = the nearest
/// code to the value under the rounded d and m, clamped to [0, 15]. kQ8_0: d = absmax / 127.
/// kF16, kBF16, kF32: nearest value. Other types: CHECK failure (they are read, never written).
/// A d or m beyond the range of f16 saturates at +-65504, so the block stays finite; a d that rounds
/// to 0 gives code 0 throughout; NaN takes no part in the range and becomes code 0.
/// Error per element: d/2, plus 2^-11 |m| + 15 * 2^-11 d (127 * 2^-11 d) from rounding m and d.
void quantize_row(const float* in, int64_t columns, DType dtype, std::byte* out);

}  // namespace triptych
