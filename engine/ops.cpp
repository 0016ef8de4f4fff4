// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/ops.h"

namespace triptych {

int64_t activation_bytes(DeviceKind device) { return device == DeviceKind::kCpu ? 4 : 2; }
int64_t qkv_scratch_columns(DeviceKind device, int64_t q, int64_t k) {
  return device == DeviceKind::kCpu ? 2 * k : q + 2 * k;
}
int64_t gate_up_scratch_columns(DeviceKind device, int64_t y) {
  return device == DeviceKind::kCpu ? 0 : 2 * y;
}

}  // namespace triptych
