// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "base/strings.h"
#include "engine/cuda/ops_cuda.h"
#include "kernels/cuda/decoder_ops.h"
#include "kernels/device_info.h"

namespace triptych {

namespace {

/// The type of all matrices, or why they cannot be used.
Result<DType> matrix_type(const ModelWeights& weights) {
  const DType type = weights.embed.dtype;
  std::vector<const WeightView*> all = {&weights.embed, &weights.lm_head};
  for (const LayerWeights& w : weights.layers) {
    all.insert(all.end(), {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down});
  }
  for (const WeightView* w : all) {
    if (w->dtype == type && (type == DType::kF16 || type == DType::kBF16)) continue;
    return fail(ErrorCode::kUnsupported,
                "weights " + std::string(weight_scheme_name(weights.scheme)) +
                    " have a matrix of " + std::string(dtype_info(w->dtype).name) +
                    ", the CUDA kernels take f16 or bf16 for all of them");
  }
  return type;
}

}  // namespace

Status check_cuda_device(const ModelWeights& weights, const EngineOptions& options) {
  const auto devices = query_devices();
  if (!devices) return Unexpected{devices.error()};
  TRIPTYCH_RETURN_IF_ERROR(check_architecture(devices->front()));
  TRIPTYCH_RETURN_IF_ERROR(matrix_type(weights));
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
