// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// DeviceWeights: the weights of a model in device memory, shared by the engines that use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/weights.h"
#include "kernels/common/cuda_handles.h"

namespace triptych {

/// Matrices as they are in host memory, row-major; vectors converted to the matrices' element type.
/// q, k and v of a layer lie back to back, as do gate and up, and the biases of q, k and v: each of
/// these is also one matrix or vector.
class DeviceWeights {
 public:
  /// One for each ModelWeights of the process, gone with its last user. All matrices of `weights`
  /// are f16, or all are bf16. Throws DeviceError.
  [[nodiscard]] static std::shared_ptr<const DeviceWeights> of(const ModelWeights& weights);

  explicit DeviceWeights(const ModelWeights& weights);

  /// Where a matrix or vector of the ModelWeights lies. Precondition: it is one of theirs.
  [[nodiscard]] const std::byte* at(const void* host) const;

 private:
  struct Source {
    const void* host;
    int64_t bytes;   // on the device
    int64_t offset;  // in the block
    bool is_vector;
    int64_t size;  // elements, of a vector
  };
  void place(std::span<const Source> together);
  void upload(const ModelWeights& weights);

  std::vector<Source> sources_;
  std::unordered_map<const void*, int64_t> offsets_;
  int64_t bytes_ = 0;
  DeviceBuffer<std::byte> block_;
};

}  // namespace triptych
