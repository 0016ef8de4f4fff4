// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Measured ceilings of the current CUDA device.
#pragma once

namespace triptych {

struct CudaCeilings {
  double read_bytes_per_s = 0;  ///< Plain 16-byte loads, the better of two grids.
  double copy_bytes_per_s = 0;  ///< Read plus written.
  double f16_flops_per_s = 0;   ///< cuBLASLt, 8192 x 8192 x 8192, random values.
};

/// Takes about a second and 6 GiB of device memory (less where less is free). Throws DeviceError.
[[nodiscard]] CudaCeilings measure_cuda_ceilings();

}  // namespace triptych
