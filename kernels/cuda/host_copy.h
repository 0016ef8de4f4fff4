// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A copy of a little host memory to the device by a kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace triptych {

/// to = from, `bytes` of them, a multiple of 4; both are aligned to 16 bytes.  from: page-locked
/// host memory, unchanged until the kernel has ended.  For some KB a step: a copy engine has more
/// bandwidth, but taking turns with it costs the stream more than the kernel takes. Throws
/// DeviceError if the launch fails.
void launch_copy_from_host(const void* from, void* to, int64_t bytes, cudaStream_t stream);

}  // namespace triptych
