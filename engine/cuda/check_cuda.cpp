// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "base/strings.h"
#include "engine/cuda/ops_cuda.h"
#include "engine/device.h"
#include "kernels/cuda/decoder_ops.h"
#include "kernels/device_info.h"

namespace triptych {

Status check_cuda_device(const ModelWeights& weights, const EngineOptions& options) {
  const auto devices = query_devices();
  if (!devices) return Unexpected{devices.error()};
  TRIPTYCH_RETURN_IF_ERROR(check_architecture(devices->front()));
  TRIPTYCH_RETURN_IF_ERROR(check_cuda_types(weights));
  if (options.tensor_parallel != 1) {
    return fail(ErrorCode::kUnsupported, "tensor parallelism on CUDA devices is not in this build");
  }
  constexpr int64_t kPageUnit = 8;  // tokens: keys are read in tiles of eight
  const bool paged = options.features.has(RuntimeFeature::kPagedKv);
  if (paged && options.page_size % kPageUnit != 0) {
    return fail(
        ErrorCode::kUnsupported,
        str_format("page_size is %lld, the CUDA kernels take multiples of %lld",
                   static_cast<long long>(options.page_size), static_cast<long long>(kPageUnit)));
  }
  const ModelConfig& c = weights.config;
  return decoder_ops_support(c.hidden_size, c.head_dim, c.intermediate_size);
}

double cuda_memory_bytes() {
  const auto devices = query_devices();
  return devices ? static_cast<double>(devices->front().memory_bytes) : 0;
}

std::optional<double> cuda_free_bytes() {
  if (cuda_memory_bytes() == 0) return std::nullopt;
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) return static_cast<double>(free);
  static_cast<void>(cudaGetLastError());
  return std::nullopt;
}

}  // namespace triptych
