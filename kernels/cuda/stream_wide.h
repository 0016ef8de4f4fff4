// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The kernels behind kernels/cuda/stream_linear.h for many rows of x.
#pragma once

#include "kernels/cuda/stream_op.h"

namespace triptych {

/// Up to kMaxWideStreamRows rows; `norm` is null. Of `tiles` only `split` is read. Requires sm_90
/// exactly and stream_wide_fits.
template <class T>
void launch_stream_wide_sm90a(const StreamOp<T>& op, StreamEpilogue epilogue, LaunchOrder order,
                              cudaStream_t stream);

/// Whether pairs that lie half a head apart fall into one tile of launch_stream_wide_sm90a.
[[nodiscard]] bool stream_wide_fits(int64_t m, int64_t head_dim);

}  // namespace triptych
