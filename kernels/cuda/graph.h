// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: what a stream would do, recorded once and launched many times.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "base/handle.h"
#include "kernels/common/cuda_check.h"

namespace triptych {

inline void destroy_graph(cudaGraph_t g) noexcept { TRIPTYCH_CUDA_LOG(cudaGraphDestroy(g)); }
inline void destroy_graph_exec(cudaGraphExec_t g) noexcept {
  TRIPTYCH_CUDA_LOG(cudaGraphExecDestroy(g));
}
using Graph = UniqueHandle<cudaGraph_t, destroy_graph>;
using GraphExec = UniqueHandle<cudaGraphExec_t, destroy_graph_exec>;

/// What record(stream) launches, ready to be launched at once. The capture is a relaxed one,
/// because the first launch of a kernel may load its module meanwhile. If record throws, the
/// capture is ended and its graph dropped. Throws DeviceError and what record throws.
template <class Record>
[[nodiscard]] GraphExec capture_graph(cudaStream_t stream, Record&& record) {
  cudaGraph_t captured = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  try {
    std::forward<Record>(record)(stream);
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &captured));
    const Graph dropped(captured);
    throw;
  }
  TRIPTYCH_CUDA_CHECK(cudaStreamEndCapture(stream, &captured));
  const Graph graph(captured);
  cudaGraphExec_t instance = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaGraphInstantiate(&instance, graph.get(), 0));
  return GraphExec(instance);
}

}  // namespace triptych
