// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "engine/cuda/ops_cuda.h"
#include "kernels/device_info.h"

namespace triptych {

Status check_cuda_device(const ModelWeights&, const EngineOptions&) {
  return Unexpected{query_devices().error()};
}

std::unique_ptr<Ops> make_cuda_ops(const ModelWeights&, const EngineOptions&, cpu::ThreadPool&) {
  TRIPTYCH_CHECK(false, "check_cuda_device() refuses in a build without CUDA");
  return nullptr;
}

double cuda_memory_bytes() { return 0; }
std::optional<double> cuda_free_bytes() { return std::nullopt; }

}  // namespace triptych
