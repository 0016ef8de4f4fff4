// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The kernels behind kernels/cuda/stream_linear.h for many rows of x.
#pragma once

#include "kernels/cuda/stream_op.h"

namespace triptych {

/// Up to kMaxWideStreamRows rows; `norm` is null. Of `tiles` only `split` is read. Requires sm_90
/// exactly.
template <class T>
void launch_stream_wide_sm90a(const StreamOp<T>& op, StreamEpilogue epilogue, LaunchOrder order,
                              cudaStream_t stream);

}  // namespace triptych
