// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// y = x W^T on the CPU for every weight type: streaming dot products for few rows of x, a packed
// and register-blocked GEMM for many.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/common/dtype.h"
#include "kernels/cost.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych::cpu {

/// x: [m, w.columns] f32, row-major, rows x_stride apart (elements); y: [m, w.rows] f32, rows
/// y_stride apart. x and y must not overlap. Requires w.columns to be a multiple of the type's
/// block. Accumulates in f32; the order of summation depends on the instruction set and on whether
/// m <= 8 (gemv) or not (gemm), never on the number of threads or the rows beside a row. So a row
/// of y has the same bits for every m up to 8, and for every m above; between the two it differs by
/// rounding. Steady state allocates nothing: scratch is kept per thread.
struct LinearArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t m = 0;
  WeightView w;
  float* y = nullptr;
  int64_t y_stride = 0;
};

/// y = x W^T.
void linear(const LinearArgs& args, ThreadPool& pool);

/// Several products that share one parallel region (Q, K and V of one input). Same results as
/// calling linear() on each.
void linear_group(std::span<const LinearArgs> group, ThreadPool& pool);

/// y = silu(x Wg^T) * (x Wu^T), without writing the two factors to memory.
/// gate and up: [n, k]; x: [m, k]; y: [m, n].
struct GateUpArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t m = 0;
  WeightView gate;
  WeightView up;
  float* y = nullptr;
  int64_t y_stride = 0;
};
void linear_gate_up_swiglu(const GateUpArgs& args, ThreadPool& pool);

/// Name of the kernel that linear() uses for this shape, e.g. "gemv_q4_1" or "gemm_f16"; stored
/// with each run.
[[nodiscard]] std::string_view linear_kernel_name(DType dtype, int64_t m);
/// The instruction set the kernels use on this machine, as Highway names it, e.g. "AVX3" (AVX-512).
[[nodiscard]] std::string_view simd_target();
/// Weights once, x and y once; 2 m n k flops.
[[nodiscard]] KernelCost linear_cost(const LinearArgs& args);

/// out[columns] = row r of w as f32. Exact for every type.
void dequantize_row(const WeightView& w, int64_t r, float* out);
/// The reference: double accumulation, one element at a time, no SIMD, no threads.
void linear_ref(const LinearArgs& args);

}  // namespace triptych::cpu
