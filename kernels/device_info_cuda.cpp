// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <fstream>
#include <utility>

#include "kernels/device_info.h"

namespace triptych {
namespace {

// The CUDA runtime knows only the CUDA version of the driver; the kernel module knows its own.
std::string driver_version() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  std::getline(file, version);
  return version;
}

/// Errors of a kernel: a context that saw one answers nothing else any more.
bool is_sticky(cudaError_t status) {
  return (status >= cudaErrorIllegalAddress && status <= cudaErrorLaunchFailure) ||
         status == cudaErrorECCUncorrectable;
}

Unexpected unavailable(cudaError_t status, int driver_cuda_version, int runtime_cuda_version) {
  if (status == cudaErrorNoDevice || status == cudaSuccess) {
    return fail(ErrorCode::kUnsupported,
                "no CUDA device is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (status == cudaErrorInsufficientDriver && driver_cuda_version == 0) {
    return fail(ErrorCode::kUnsupported, "no NVIDIA driver is installed (libcuda.so.1)");
  }
  if (status == cudaErrorInsufficientDriver) {
    return fail(ErrorCode::kUnsupported,
                "the NVIDIA driver supports CUDA " + cuda_version_text(driver_cuda_version) +
                    ", this build needs " + cuda_version_text(runtime_cuda_version));
  }
  if (is_sticky(status)) {
    return fail(ErrorCode::kDeviceLost,
                std::string("this process has lost its device: ") + cudaGetErrorString(status));
  }
  return fail(ErrorCode::kUnsupported,
              std::string("CUDA cannot start: ") + cudaGetErrorString(status));
}

}  // namespace

Result<std::vector<DeviceInfo>> query_devices() {
  int driver = 0;
  int runtime = 0;
  int count = 0;
  // Version 0 is the documented answer without a driver, so these statuses carry nothing more.
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());  // clears it for the next, unrelated check
    return unavailable(status, driver, runtime);
  }
  std::vector<DeviceInfo> devices;
  for (int id = 0; id < count; ++id) {
    cudaDeviceProp properties{};
    const cudaError_t read = cudaGetDeviceProperties(&properties, id);
    if (read != cudaSuccess) return unavailable(read, driver, runtime);
    devices.push_back({.device_id = id,
                       .name = properties.name,
                       .compute_major = properties.major,
                       .compute_minor = properties.minor,
                       .num_sms = properties.multiProcessorCount,
                       .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                       .l2_bytes = properties.l2CacheSize,
                       .driver = driver_version(),
                       .driver_cuda_version = driver,
                       .runtime_cuda_version = runtime});
  }
  return devices;
}

}  // namespace triptych
