// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Shards: what one rank of a tensor-parallel engine holds of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/model_config.h"
#include "engine/weights.h"

namespace triptych {

/// Part `part` of `count` things cut into `parts` runs of whole units (the last may be short) that
/// differ by one unit at most.
struct ShardRange {
  int64_t first = 0;
  int64_t count = 0;
};
[[nodiscard]] ShardRange shard_range(int64_t count, int64_t unit, int parts, int part);

/// Whether the heads of a model can be divided among `tp` ranks: tp divides num_q_heads, and one of
/// tp and num_kv_heads divides the other. Errors: kUnsupported with the numbers.
[[nodiscard]] Status check_tensor_parallel(const ModelConfig& config, int tp);

/// The model as rank `rank` of `tp` sees it, 0 <= rank < tp. Source: Megatron-LM, Shoeybi et al.
/// 2019, section 3: the first matrix of a pair by rows, the second by columns, one sum after it.
///   q, k, v, gate, up  their rows: heads of this rank, columns of `down` of this rank; views
///   o, down            their columns, in whole quantization blocks; copies
///   lm_head            its rows (vocabulary); a view
///   biases             those of its heads
///   embed, norms       whole
/// KV heads are replicated when there are fewer of them than ranks. Intermediate and vocabulary
/// need not divide evenly. Shapes without numbers (weight_shapes.h) give shapes of shards. The
/// config keeps hidden_size and vocab_size and has this rank's heads
/// and intermediate_size. The shard keeps `whole` alive; tp = 1 gives `whole` itself.
/// Errors: as check_tensor_parallel(); kUnsupported naming tp and the tensor whose columns cannot
/// be cut between blocks.
[[nodiscard]] Result<std::shared_ptr<const ModelWeights>> shard_weights(
    std::shared_ptr<const ModelWeights> whole, int rank, int tp);
/// The shards of all ranks, in order.
[[nodiscard]] Result<std::vector<std::shared_ptr<const ModelWeights>>> make_shards(
    const std::shared_ptr<const ModelWeights>& whole, int tp);

}  // namespace triptych
