// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/device.h"

#include <string>
#include <vector>

#include "base/strings.h"
#include "engine/cuda/ops_cuda.h"
#include "engine/memory_need.h"
#include "engine/ops_cpu.h"

namespace triptych {

namespace {

constexpr int64_t kMaxCpuHeadDim = 1024;  // what the rotary kernel takes

}  // namespace

Status check_device(const ModelWeights& weights, const EngineOptions& options) {
  if (options.device == DeviceKind::kCuda) return check_cuda_device(weights, options);
  if (weights.config.head_dim <= kMaxCpuHeadDim) return {};
  return fail(ErrorCode::kUnsupported,
              str_format("head_dim is %lld, the CPU's kernels take at most %lld",
                         static_cast<long long>(weights.config.head_dim),
                         static_cast<long long>(kMaxCpuHeadDim)));
}

Status check_cuda_types(const ModelWeights& weights) {
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
  return {};
}

std::unique_ptr<Ops> make_ops(const ModelWeights& weights, const EngineOptions& options,
                              cpu::ThreadPool& pool) {
  if (options.device == DeviceKind::kCuda) return make_cuda_ops(weights, options, pool);
  return make_cpu_ops(weights.config, pool);
}

double device_memory_bytes(DeviceKind device) {
  return device == DeviceKind::kCuda ? cuda_memory_bytes() : machine_memory_bytes();
}

std::optional<double> device_free_bytes(DeviceKind device) {
  return device == DeviceKind::kCuda ? cuda_free_bytes() : std::nullopt;
}

}  // namespace triptych
