// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The device that an engine runs on: its table of operations and its memory. The same functions in
// builds with and without CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/ops.h"
#include "engine/weights.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych {

/// Whether options.device exists here and can run this model. Errors: kUnsupported with what is
/// missing and what would help.
[[nodiscard]] Status check_device(const ModelWeights& weights, const EngineOptions& options);

/// Whether the CUDA kernels know the type of every matrix, whatever the device: a plan may be made
/// where there is none. Errors: kUnsupported with the type and the weights.
[[nodiscard]] Status check_cuda_types(const ModelWeights& weights);

/// Operations of options.device; `pool` is for what its host does. Keeps references to `weights`
/// and `pool`. Throws std::bad_alloc and DeviceError.
[[nodiscard]] std::unique_ptr<Ops> make_ops(const ModelWeights& weights,
                                            const EngineOptions& options, cpu::ThreadPool& pool);

/// Installed memory of a device, bytes.
[[nodiscard]] double device_memory_bytes(DeviceKind device);
/// What of a CUDA device's memory nobody holds, this process or another; none on the CPU, where the
/// system gives more than it has, and without a device.
[[nodiscard]] std::optional<double> device_free_bytes(DeviceKind device);

}  // namespace triptych
