// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_info.h"

namespace triptych {

Result<std::vector<DeviceInfo>> query_devices() {
  return fail(ErrorCode::kUnsupported,
              "this build has no CUDA; configure with the preset `gpu` on a machine with nvcc");
}

}  // namespace triptych
