// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// lose_device(): makes the CUDA context of this process useless, as a faulty kernel does.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "kernels/common/cuda_handles.h"
#include "kernels/cuda/decoder_ops.h"

namespace triptych {

/// A kernel writes to an address that is not there. Nothing is reported yet: the next call that
/// waits for the device finds out.
inline void lose_device() {
  __half* const nowhere = reinterpret_cast<__half*>(16);
  launch_add<__half>(nowhere, nowhere, nowhere, 8, nullptr);
  cudaStreamSynchronize(nullptr);
  static_cast<void>(cudaGetLastError());
}

}  // namespace triptych
