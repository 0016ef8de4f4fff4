// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// TRIPTYCH_CUDA_CHECK: a CUDA call that must succeed, or the run is over.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <string>

#include "kernels/device_error.h"

namespace triptych {

static_assert(DeviceError::kOutOfMemory == cudaErrorMemoryAllocation);

/// The text of a DeviceError. That of an allocation has the numbers: the `wanted` bytes, if they
/// are known, and what is free; the status is forgotten, so that no later call sees it.
inline std::string cuda_error_text(cudaError_t status, size_t wanted = 0) {
  if (status != cudaErrorMemoryAllocation) return cudaGetErrorString(status);
  static_cast<void>(cudaGetLastError());
  constexpr int kMiB = 20;  // bits
  size_t free = 0;
  size_t total = 0;
  std::string text = "out of memory: ";
  if (wanted > 0) text += std::to_string((wanted >> kMiB) + 1) + " MiB asked for, ";
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return text + "what is free is not known";
  return text + std::to_string(free >> kMiB) + " of the device's " + std::to_string(total >> kMiB) +
         " MiB are free";
}

inline void cuda_check(cudaError_t status, const char* file, int line, const char* call) {
  if (status != cudaSuccess) [[unlikely]] {
    throw DeviceError(file, line, call, static_cast<int>(status), cuda_error_text(status));
  }
}

/// For destructors, which may neither throw nor report. cudaErrorCudartUnloading is expected when
/// a static object outlives the CUDA runtime, and is not printed; what repeats is printed once, as
/// every call fails alike once the context is lost.
inline void cuda_log_failure(cudaError_t status, const char* call) noexcept {
  if (status == cudaSuccess || status == cudaErrorCudartUnloading) return;
  static std::atomic<int> last = cudaSuccess;
  if (last.exchange(status) == status) return;
  std::fprintf(stderr, "warning: %s: %s (%d)\n", call, cudaGetErrorString(status),
               static_cast<int>(status));
}

}  // namespace triptych

/// Throws DeviceError with file, line, call, code and text unless `call` gives cudaSuccess.
#define TRIPTYCH_CUDA_CHECK(call) ::triptych::cuda_check((call), __FILE__, __LINE__, #call)
/// Prints instead of throwing; only for destructors and C callbacks.
#define TRIPTYCH_CUDA_LOG(call) ::triptych::cuda_log_failure((call), #call)
