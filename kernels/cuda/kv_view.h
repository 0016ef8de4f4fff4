// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// KvView: where a CUDA device holds the keys and values of one layer. Device pointers throughout.
#pragma once

#include <cstdint>

namespace triptych {

/// Two layouts, told apart by page_table:
///   paged       k, v: [num_pages, num_kv_heads, page_size, head_dim]. Token t of sequence s is row
///               t % page_size of page page_table[s * page_table_stride + t / page_size].
///   contiguous  k, v: sequences one after another, sequence s being [num_kv_heads, length,
///               head_dim] with length = kv_lengths[s] of the launch; its first element is number
///               starts[s] * num_kv_heads * head_dim.
/// T is __half or __nv_bfloat16. k and v are aligned to 16 bytes.
template <class T>
struct KvView {
  T* k = nullptr;
  T* v = nullptr;
  const int32_t* page_table = nullptr;  ///< [num_sequences, page_table_stride]; null: contiguous.
  int64_t page_table_stride = 0;
  int64_t page_size = 0;            ///< Tokens; paged only.
  const int32_t* starts = nullptr;  ///< [num_sequences]; contiguous only.
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
};

}  // namespace triptych
