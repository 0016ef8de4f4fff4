// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemv.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/scratch.h"

namespace triptych::cpu {
namespace {

bool uses_gemv(int64_t m) { return m <= kMaxGemvRows; }

void check_args(const LinearArgs& args) {
  TRIPTYCH_CHECK(args.w.columns % dtype_info(args.w.dtype).block_elements == 0,
                 "columns must be a multiple of the type's block");
}

bool same_input(const LinearArgs& a, const LinearArgs& b) {
  return a.x == b.x && a.x_stride == b.x_stride && a.m == b.m && a.w.columns == b.w.columns;
}

// Cuts [begin, end) of the members' concatenated rows, each padded to a multiple of `grain` so that
// no register tile spans two members, and calls f(member, first_row, last_row) for every piece.
template <class F>
void for_each_piece(std::span<const LinearArgs> group, int64_t grain, int64_t begin, int64_t end,
                    const F& f) {
  int64_t base = 0;
  for (const LinearArgs& member : group) {
    const int64_t first = std::max<int64_t>(begin - base, 0);
    const int64_t last = std::min(end - base, member.w.rows);
    if (first < last) f(member, first, last);
    base += (member.w.rows + grain - 1) / grain * grain;
  }
}

int64_t padded_rows(std::span<const LinearArgs> group, int64_t grain) {
  int64_t rows = 0;
  for (const LinearArgs& member : group) rows += (member.w.rows + grain - 1) / grain * grain;
  return rows;
}

void run_gemv(std::span<const LinearArgs> group, ThreadPool& pool) {
  auto body = [&](int64_t begin, int64_t end, int) {
    for_each_piece(group, kGemvGrain, begin, end,
                   [](const LinearArgs& a, int64_t first, int64_t last) {
                     gemv({a.x, a.x_stride, a.m, a.w, first, last, a.y + first, a.y_stride});
                   });
  };
  pool.parallel_for(padded_rows(group, kGemvGrain), kGemvGrain, body);
}

PackedX pack(const float* x, int64_t x_stride, int64_t m, int64_t columns, ThreadPool& pool) {
  thread_local Scratch scratch;  // of the thread that owns the region; the workers only read it
  float* packed = scratch.floats(static_cast<size_t>(gemm_packed_floats(m, columns)));
  auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t tile = begin; tile < end; ++tile) {
      gemm_pack_tile(x, x_stride, m, columns, tile, packed);
    }
  };
  const int64_t tile_rows = gemm_tile_rows();
  pool.parallel_for((m + tile_rows - 1) / tile_rows, 1, body);
  return {packed, m, columns};
}

// All members have the same x, which is packed once.
void run_gemm(std::span<const LinearArgs> group, ThreadPool& pool) {
  const LinearArgs& front = group.front();
  const PackedX x = pack(front.x, front.x_stride, front.m, front.w.columns, pool);
  auto body = [&](int64_t begin, int64_t end, int) {
    for_each_piece(group, kGemmGrain, begin, end,
                   [&x](const LinearArgs& a, int64_t first, int64_t last) {
                     gemm({x, a.w, nullptr, first, last, a.y, a.y_stride});
                   });
  };
  pool.parallel_for(padded_rows(group, kGemmGrain), kGemmGrain, body);
}

// Rows [begin, end) of both weights in pieces whose two products, at most 64 KiB, stay in the
// second-level cache.
void gate_up_gemv(const GateUpArgs& args, int64_t begin, int64_t end) {
  constexpr int64_t kPiece = 1024;
  thread_local Scratch scratch;
  float* gate = scratch.floats(2 * kMaxGemvRows * kPiece);
  float* up = gate + kMaxGemvRows * kPiece;
  for (int64_t n = begin; n < end; n += kPiece) {
    const int64_t last = std::min(n + kPiece, end);
    gemv({args.x, args.x_stride, args.m, args.gate, n, last, gate, kPiece});
    gemv({args.x, args.x_stride, args.m, args.up, n, last, up, kPiece});
    for (int64_t i = 0; i < args.m; ++i) {
      swiglu(gate + i * kPiece, up + i * kPiece, args.y + i * args.y_stride + n, last - n);
    }
  }
}

}  // namespace

void linear(const LinearArgs& args, ThreadPool& pool) { linear_group({&args, 1}, pool); }

void linear_group(std::span<const LinearArgs> group, ThreadPool& pool) {
  for (const LinearArgs& args : group) check_args(args);
  // One region for a run of members that take the same path; products of many rows also need the
  // same x, which is the case for Q, K and V.
  for (size_t first = 0; first < group.size();) {
    const bool is_gemv = uses_gemv(group[first].m);
    size_t last = first + 1;
    while (last < group.size() &&
           (is_gemv ? uses_gemv(group[last].m) : same_input(group[first], group[last]))) {
      ++last;
    }
    const auto run = group.subspan(first, last - first);
    if (group[first].m > 0) is_gemv ? run_gemv(run, pool) : run_gemm(run, pool);
    first = last;
  }
}

void linear_gate_up_swiglu(const GateUpArgs& args, ThreadPool& pool) {
  check_args({.x = args.x, .m = args.m, .w = args.gate});
  check_args({.x = args.x, .m = args.m, .w = args.up});
  TRIPTYCH_CHECK(args.gate.rows == args.up.rows && args.gate.columns == args.up.columns,
                 "gate and up must have one shape");
  if (args.m == 0) return;
  if (uses_gemv(args.m)) {
    auto body = [&](int64_t begin, int64_t end, int) { gate_up_gemv(args, begin, end); };
    pool.parallel_for(args.gate.rows, kGemvGrain, body);
    return;
  }
  const PackedX x = pack(args.x, args.x_stride, args.m, args.gate.columns, pool);
  auto body = [&](int64_t begin, int64_t end, int) {
    gemm({x, args.gate, &args.up, begin, end, args.y, args.y_stride});
  };
  pool.parallel_for(args.gate.rows, kGemmGrain, body);
}

std::string_view linear_kernel_name(DType dtype, int64_t m) {
  static constexpr std::array<std::array<std::string_view, 2>, kDTypes.size()> kNames = {{
      {"gemv_f32", "gemm_f32"},
      {"gemv_f16", "gemm_f16"},
      {"gemv_bf16", "gemm_bf16"},
      {"gemv_q8_0", "gemm_q8_0"},
      {"gemv_q4_0", "gemm_q4_0"},
      {"gemv_q4_1", "gemm_q4_1"},
      {"gemv_q4_1_g64", "gemm_q4_1_g64"},
      {"gemv_q5_0", "gemm_q5_0"},
      {"gemv_q5_1", "gemm_q5_1"},
      {"gemv_q4_k", "gemm_q4_k"},
      {"gemv_q5_k", "gemm_q5_k"},
      {"gemv_q6_k", "gemm_q6_k"},
  }};
  return kNames[static_cast<size_t>(dtype)][uses_gemv(m) ? 0 : 1];
}

KernelCost linear_cost(const LinearArgs& args) {
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  return {.bytes_read = args.w.bytes() + args.m * args.w.columns * kFloatBytes,
          .bytes_written = args.m * args.w.rows * kFloatBytes,
          .flops = 2 * args.m * args.w.rows * args.w.columns};
}

}  // namespace triptych::cpu
