// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// TRIPTYCH_CUDA_CHECK: a CUDA call that must succeed, or the run is over.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>

#include "kernels/device_error.h"

namespace triptych {

inline void cuda_check(cudaError_t status, const char* file, int line, const char* call) {
  if (status != cudaSuccess) [[unlikely]] {
    throw DeviceError(file, line, call, static_cast<int>(status), cudaGetErrorString(status));
  }
}

/// For destructors, which may neither throw nor report. cudaErrorCudartUnloading is expected when
/// a static object outlives the CUDA runtime, and is not printed.
inline void cuda_log_failure(cudaError_t status, const char* call) noexcept {
  if (status != cudaSuccess && status != cudaErrorCudartUnloading) {
    std::fprintf(stderr, "warning: %s: %s (%d)\n", call, cudaGetErrorString(status),
                 static_cast<int>(status));
  }
}

}  // namespace triptych

/// Throws DeviceError with file, line, call, code and text unless `call` gives cudaSuccess.
#define TRIPTYCH_CUDA_CHECK(call) ::triptych::cuda_check((call), __FILE__, __LINE__, #call)
/// Prints instead of throwing; only for destructors and C callbacks.
#define TRIPTYCH_CUDA_LOG(call) ::triptych::cuda_log_failure((call), #call)
