// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Gemm: y = x W^T of many rows through cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "kernels/cost.h"

namespace triptych {

/// y = x W^T + beta * y, sums in f32. T is __half or __nv_bfloat16; device memory, row-major.
template <class T>
struct GemmArgs {
  const T* x = nullptr;  ///< [m, k], rows x_stride elements apart.
  int64_t x_stride = 0;
  const T* w = nullptr;  ///< [n, k], back to back.
  T* y = nullptr;        ///< [m, n], rows y_stride elements apart.
  int64_t y_stride = 0;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  float beta = 0.0f;  ///< 0 or 1.
};

/// What traces and results call these products, whichever kernel the library chooses.
inline constexpr std::string_view kGemmKernelName = "cublaslt_gemm";

/// A cuBLASLt handle with its workspace and the algorithms chosen so far, one for each shape and
/// type (the first of the library's heuristic). Not for use from two threads at once. Calls may be
/// captured into a graph.
class Gemm {
 public:
  Gemm();  ///< Of the current device. Throws DeviceError.
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Throws DeviceError if the library has no algorithm or fails.
  template <class T>
  void run(const GemmArgs<T>& args, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Weights, x and y once; 2 m n k flops.
[[nodiscard]] KernelCost gemm_cost(int64_t m, int64_t n, int64_t k, int64_t element_bytes);

}  // namespace triptych
