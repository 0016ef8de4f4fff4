// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Products on tensor cores by a warpgroup, 128 threads whose first is a multiple of 128 (sm_90a
// only). Operands lie in shared memory in pieces of 64 numbers a row, 128 bytes, swizzled, rows 128
// bytes apart (tile_byte in kernels/cuda/kv_rows.cuh). Warp w holds rows 16 w to 16 w + 15 of the
// 64 of a sum, in the layout of kernels/common/mma.cuh.
#pragma once

#include <cstdint>

namespace triptych {

/// Describes an operand that starts at `address`, aligned to 1024 bytes up to multiples of 32
/// within a row. 8 rows and the next 8 are 1024 bytes apart; `piece_bytes` apart are pieces, which
/// matters where a product spans several (transposed operands).
__device__ inline uint64_t describe_operand(uint32_t address, uint32_t piece_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kRowGroup = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kRowGroup | uint64_t{piece_bytes >> 4} << 16 | (address & 0x3FFFF) >> 4;
}

/// What this thread has written to registers and shared memory is ready for products.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all products; sums may be read only then.
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/// Waits for all but those committed last: the operands of the others may be overwritten.
__device__ inline void wait_for_products_before() {
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

/// Products run beside what follows them, which the compiler does not know: a value that they read
/// is pinned before they begin, a sum after they were waited for.
__device__ inline void pin(float& value) { asm volatile("" : "+f"(value)::"memory"); }
__device__ inline void pin(uint32_t& value) { asm volatile("" : "+r"(value)::"memory"); }
template <class V, int kCount>
__device__ void pin(V (&values)[kCount]) {
#pragma unroll
  for (V& value : values) pin(value);
}

}  // namespace triptych
