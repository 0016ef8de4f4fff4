// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// KvRows: finds the cached tokens of one sequence and KV head; and how tiles of them lie in shared
// memory.
#pragma once

#include <cstdint>

#include "kernels/common/cp_async.cuh"
#include "kernels/cuda/kv_view.h"

namespace triptych {

/// Tokens that lie back to back in every layout: page sizes and tiles are multiples of it.
inline constexpr int kTokenGroup = 8;
/// Numbers of 16 bits in one asynchronous copy, 16 bytes.
inline constexpr int kChunk = 8;

/// Rows are vectors of head_dim numbers, counted from the start of the cache. An int holds their
/// number: 2^31 rows of even 16 numbers are 64 GiB in each of k and v, for one layer.
class KvRows {
 public:
  template <class T>
  __device__ KvRows(const KvView<T>& kv, int sequence, int kv_head, int length) {
    if (kv.page_table != nullptr) {
      pages_ = kv.page_table + sequence * kv.page_table_stride;
      page_groups_ = static_cast<unsigned>(kv.page_size) / kTokenGroup;
      page_rows_ = static_cast<int>(kv.num_kv_heads * kv.page_size);
      first_ = static_cast<int>(kv_head * kv.page_size);
    } else {
      first_ = static_cast<int>(kv.starts[sequence] * kv.num_kv_heads) + kv_head * length;
    }
  }

  /// The row of token kTokenGroup * group, which the sequence has.
  [[nodiscard]] __device__ int row(unsigned group) const {
    if (pages_ == nullptr) return first_ + static_cast<int>(group) * kTokenGroup;
    const unsigned page = group / page_groups_;
    const unsigned within = group - page * page_groups_;
    return pages_[page] * page_rows_ + first_ + static_cast<int>(within) * kTokenGroup;
  }

 private:
  const int32_t* pages_ = nullptr;
  unsigned page_groups_ = 1;
  int page_rows_ = 0;
  int first_ = 0;
};

/// Byte of a chunk in a tile of kRows rows in shared memory: a piece of 64 numbers of each row, 128
/// bytes, then the next piece of each. Chunks of a piece change places by the number of their row.
/// So tensor maps and products of sm_90 swizzle 128 bytes, and one chunk of 8 neighbouring rows
/// (ldmatrix) is read without bank conflicts. Tiles are aligned to 1024 bytes.
template <int kRows>
__device__ constexpr unsigned tile_byte(unsigned row, unsigned chunk) {
  return chunk / 8 * (kRows * 128) + row * 128 + (chunk % 8 ^ row % 8) * 16;
}
/// tile_byte(row, chunk + further) behind `first`, the address of tile_byte(row, chunk): chunk is
/// below 2 and `further` even, or below 4 and a multiple of 4; the compiler knows `further`.
template <int kRows>
__device__ constexpr uint32_t further_chunk(uint32_t first, unsigned further) {
  return (first ^ further % 8 * 16) + further / 8 * (kRows * 128);
}

/// Tokens that a block or warp may read: outside of them the cache may hold anything, even NaN,
/// which would outlive a product with 0; so they become zeros in shared memory.
struct TokenRange {
  int begin = 0;
  int end = 0;
  [[nodiscard]] __device__ bool contains(int token) const { return token >= begin && token < end; }
};

}  // namespace triptych
