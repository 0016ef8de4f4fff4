// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The variants between which launch_prefill_attention in kernels/cuda/attention.h chooses.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/attention.h"

namespace triptych {

/// Fewest rows, pairs of a token and a query head of a KV head, in the tile of any variant.
inline constexpr int64_t kMinPrefillTileRows = 64;
/// Largest head_dim of the variant for sm_90: two tiles of wider sums do not fit the registers.
inline constexpr int64_t kMaxWarpgroupHeadDim = 128;

/// Any device from sm_80 on. Returns the launch error.
template <class T>
cudaError_t launch_prefill_attention_general(const AttentionArgs<T>& args, cudaStream_t stream);
/// sm_90, head_dim up to kMaxWarpgroupHeadDim. Returns the launch error.
template <class T>
cudaError_t launch_prefill_attention_sm90a(const AttentionArgs<T>& args, cudaStream_t stream);

}  // namespace triptych
