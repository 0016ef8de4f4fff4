// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The CUDA table of operations: f16 or bf16 activations, the kernels of kernels/cuda, one stream.
// The same functions in builds without CUDA, where no device is there.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/ops.h"
#include "engine/weights.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych {

/// Errors: kUnsupported with the reason (this build, no driver, no device, its architecture, a
/// weight type, a shape).
[[nodiscard]] Status check_cuda_device(const ModelWeights& weights, const EngineOptions& options);

/// Operations are issued to one stream and run in that order; a call throws DeviceError, which says
/// whether memory was missing or the device is lost. Weights are uploaded
/// once for all engines of the process that use the same ModelWeights. Precondition:
/// check_cuda_device() succeeded.
[[nodiscard]] std::unique_ptr<Ops> make_cuda_ops(const ModelWeights& weights,
                                                 const EngineOptions& options,
                                                 cpu::ThreadPool& pool);

/// Memory of the first device, bytes; 0 without one.
[[nodiscard]] double cuda_memory_bytes();
/// What of it is free now, to this process and to others; none without a device.
[[nodiscard]] std::optional<double> cuda_free_bytes();

}  // namespace triptych
