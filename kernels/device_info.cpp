// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_info.h"

#include "base/strings.h"
#include "base/units.h"

namespace triptych {

std::string cuda_version_text(int version) {
  return str_format("%d.%d", version / 1000, version % 1000 / 10);
}

std::string DeviceInfo::to_string() const {
  std::string text =
      str_format("%s, sm_%d%d, %d SMs, ", name.c_str(), compute_major, compute_minor, num_sms);
  text += format_bytes(static_cast<double>(memory_bytes)) + ", L2 " +
          format_bytes(static_cast<double>(l2_bytes));
  text += ", driver " + (driver.empty() ? "unknown" : driver);
  return text + " (CUDA " + cuda_version_text(driver_cuda_version) + ")";
}

Status check_architecture(const DeviceInfo& device) {
  constexpr int kOldest = 8;  // sm_80: cp.async and bf16 products
  if (device.compute_major >= kOldest) return {};
  return fail(ErrorCode::kUnsupported,
              str_format("%s is an sm_%d%d device; this build has code for sm_80 and later",
                         device.name.c_str(), device.compute_major, device.compute_minor));
}

}  // namespace triptych
