// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// DeviceInfo: which GPUs this process can use. The same function in builds with and without CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace triptych {

struct DeviceInfo {
  int device_id = 0;
  std::string name;  ///< "NVIDIA H200"
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  std::string driver;            ///< "580.159.04"; "" where the kernel module does not tell.
  int driver_cuda_version = 0;   ///< Highest CUDA version of the driver: 13000 is 13.0.
  int runtime_cuda_version = 0;  ///< CUDA version of this build.

  /// "NVIDIA H200, sm_90, 132 SMs, 139 GiB, L2 60.0 MiB, driver 580.159.04 (CUDA 13.0)"
  [[nodiscard]] std::string to_string() const;
};

/// "13.0" for 13000, as cudaDriverGetVersion encodes it.
[[nodiscard]] std::string cuda_version_text(int version);

/// Whether this build has code for a device. Errors: kUnsupported with its architecture and those
/// that would do.
[[nodiscard]] Status check_architecture(const DeviceInfo& device);

/// All visible devices, at least one. Errors: kUnsupported with what is missing (this build has no
/// CUDA, no driver, an old driver, no device) and what would help; kDeviceLost after an error that
/// left this process without its context.
[[nodiscard]] Result<std::vector<DeviceInfo>> query_devices();

}  // namespace triptych
