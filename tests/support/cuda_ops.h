// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The table of operations of a small model on a CUDA device, for tests of what stands around it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/device.h"
#include "engine/kv_cache.h"
#include "kernels/common/cuda_handles.h"
#include "tests/support/cuda_engine.h"
#include "tests/support/gpu_test.h"

namespace triptych {

/// Makes the operations of base_config() in SetUp.
class CudaOpsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    ops_ = make(options("fast", DeviceKind::kCuda, kMaxBatch));
  }
  std::unique_ptr<Ops> make(const EngineOptions& o) const { return make_ops(*weights_, o, *pool_); }

  template <class T>
  static std::vector<T> from_device(const T* memory, int64_t count) {
    TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());
    std::vector<T> host(static_cast<size_t>(count));
    TRIPTYCH_CUDA_CHECK(
        cudaMemcpy(host.data(), memory, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

  static constexpr int64_t kMaxBatch = 8;
  static constexpr KvShape kShape{
      .num_layers = 3, .kv_columns = 2 * 64, .max_batch = kMaxBatch, .max_sequence = 400};

  std::shared_ptr<const ModelWeights> weights_ = model_of(base_config(), DType::kF16, 5);
  std::unique_ptr<cpu::ThreadPool> pool_ = std::make_unique<cpu::ThreadPool>(1);
  std::unique_ptr<Ops> ops_;
};

}  // namespace triptych
