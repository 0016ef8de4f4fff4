// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How a decode attention is spread over a device, and the variants between which the launch in
// kernels/cuda/attention.h chooses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "kernels/cuda/attention.h"

namespace triptych {

/// The keys of each sequence and KV head are split over `splits` blocks, evenly by the true length.
/// A result depends on `splits` in its last bits, and on nothing else of the batch.
struct DecodePlan {
  int splits = 1;  ///< A power of two up to kMaxDecodeSplits.
  int stages =
      1;  ///< 8 KiB of keys and values in flight in each of the 4 warps of a block: 1 to 3.
  /// One more tile waits in the registers of each warp, and `stages` is 1 (sm_90, head_dim up to
  /// 128). For blocks that start early, beside the kernel before.
  bool holds = false;
};
inline constexpr int kMaxDecodeSplits = 16;
/// Tokens that a warp takes in at once.
inline constexpr int kDecodeTile = 16;
/// Where splits meet in the workspace: at most so many blocks, of at most so many pairs of a
/// sequence and a KV head.
inline constexpr int64_t kMaxSplitBlocks = 1024;
inline constexpr int64_t kMaxSplitPairs = kMaxSplitBlocks / 2;

struct DecodeShape {
  int64_t num_sequences = 0;
  int64_t num_kv_heads = 0;
  int64_t max_kv_length = 0;
  int64_t window = 0;
  int num_sms = 0;
  int max_splits = kMaxDecodeSplits;  ///< Of the variant on this device.
  /// Of the variant; blocks that are no splits have no bound.
  int64_t max_split_blocks = std::numeric_limits<int64_t>::max();
};
[[nodiscard]] DecodePlan plan_decode_attention(const DecodeShape& shape);

/// launch_decode_attention with a plan of the caller's.
template <class T>
void launch_decode_attention(const AttentionArgs<T>& args, const DecodePlan& plan,
                             cudaStream_t stream);

/// Any device from sm_80 on: splits meet in the workspace, the last to arrive merges them. Returns
/// the launch error.
template <class T>
cudaError_t launch_decode_attention_general(const AttentionArgs<T>& args, const DecodePlan& plan,
                                            cudaStream_t stream);
/// sm_90, head_dim 64, 128 or 256, pages of a multiple of 16 tokens or a contiguous cache: the
/// splits are a cluster and meet in shared memory. Returns the launch error.
template <class T>
cudaError_t launch_decode_attention_sm90a(const AttentionArgs<T>& args, const DecodePlan& plan,
                                          cudaStream_t stream);
/// Largest cluster of decode blocks that the current device takes, up to kMaxDecodeSplits.
[[nodiscard]] int max_decode_cluster();

}  // namespace triptych
