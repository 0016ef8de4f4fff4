// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The device's side of LaunchOrder (kernels/cuda/launch.h). Nothing before sm_90, and nothing in a
// kernel that was launched in the ordinary way.
#pragma once

namespace triptych {

/// The next kernel of the stream may be started as soon as every block has come here or ended.
__device__ inline void allow_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Returns when the kernels before this one have ended and what they wrote can be read.
__device__ inline void wait_for_previous_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace triptych
