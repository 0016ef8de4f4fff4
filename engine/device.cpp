// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/device.h"

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
