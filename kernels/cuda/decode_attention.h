// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How a decode attention is spread over a device, and the variants between which the launch in
// kernels/cuda/attention.h chooses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/attention.h"

namespace triptych {

/// The keys of each sequence and KV head are split over `splits` blocks, evenly by the true length.
/// A result depends on `splits` in its last bits, and on nothing else of the batch.
struct DecodePlan {
  int splits = 1;  ///< A power of two up to kMaxDecodeSplits.
  int stages = 1;  ///< Tiles in flight in each warp: 1, 2 or 4.
};
inline constexpr int kMaxDecodeSplits = 16;
/// Where splits meet in the workspace: at most so many blocks, of at most so many pairs of a
/// sequence and a KV head.
inline constexpr int64_t kMaxSplitBlocks = 1024;
inline constexpr int64_t kMaxSplitPairs = kMaxSplitBlocks / 2;

struct DecodeShape {
  int64_t num_sequences = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_kv_length = 0;
  int64_t window = 0;
  int num_sms = 0;
  int max_splits = kMaxDecodeSplits;  ///< Of the variant on this device.
  int64_t max_split_blocks = int64_t{1}
                             << 31;  ///< Of the variant; no bound on blocks that stay whole.
};
[[nodiscard]] DecodePlan plan_decode_attention(const DecodeShape& shape);

/// launch_decode_attention with a plan of the caller's.
template <class T>
void launch_decode_attention(const AttentionArgs<T>& args, const DecodePlan& plan,
                             cudaStream_t stream);

/// Any device: splits meet in the workspace, the last to arrive merges them. Return the launch
/// error.
template <class T>
cudaError_t launch_decode_attention_general(const AttentionArgs<T>& args, const DecodePlan& plan,
                                            cudaStream_t stream);
/// sm_90: the splits are a cluster and meet in shared memory.
template <class T>
cudaError_t launch_decode_attention_sm90a(const AttentionArgs<T>& args, const DecodePlan& plan,
                                          cudaStream_t stream);
/// Largest cluster of decode blocks that the current device takes, up to kMaxDecodeSplits.
[[nodiscard]] int max_decode_cluster();

}  // namespace triptych
