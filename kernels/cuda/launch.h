// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How a kernel launch is ordered after the one before it on its stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace triptych {

enum class LaunchOrder : uint8_t {
  kAfterPrevious,  ///< Starts when the previous launch has ended.
  /// Programmatic dependent launch: may start while the previous kernel still runs, reads nothing
  /// but weights and the step's metadata before griddepcontrol.wait. Every kernel that is launched
  /// so, and every kernel that comes before one, executes griddepcontrol.wait in all of its blocks
  /// before it writes (then completion is transitive). Devices before sm_90 treat it as
  /// kAfterPrevious.
  kOverlapPrevious,
};

/// Launches `kernel(args...)` with the order given. Throws nothing; read cudaGetLastError().
template <class... Params, class... Args>
cudaError_t launch_kernel(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                          cudaStream_t stream, LaunchOrder order, unsigned cluster,
                          Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (order == LaunchOrder::kOverlapPrevious) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {cluster, 1, 1};
  }
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace triptych
