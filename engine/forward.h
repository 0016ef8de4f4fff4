// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Forward: the decoder as a sequence of operations, once per shape of runtime, for every device.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/activations.h"
#include "engine/communicator.h"
#include "engine/ops.h"
#include "engine/weights.h"

namespace triptych {

/// Whether each operation stands alone or neighbours are one call (RuntimeFeature::kFused).
enum class ForwardShape : uint8_t { kOpByOp, kFused };

class Forward {
 public:
  /// Keeps references to `ops`, `memory` and, if it is not null, `communicator`: then `weights` are
  /// a rank's shard, and every rank calls hidden() and logits() with the same rows.
  Forward(const ModelWeights& weights, ForwardShape shape, Ops& ops, ActivationMemory& memory,
          Communicator* communicator = nullptr);

  /// Extends the cache by the step's tokens and makes the step the one to compute. Throws
  /// std::bad_alloc.
  void begin(const Step& step);
  /// Reads the tokens of the step that was begun, of so many rows, and returns the final norm's
  /// output, [rows, hidden_size]. Throws std::bad_alloc and CommunicationAborted.
  [[nodiscard]] Activation hidden(int64_t rows);

  /// hidden lm_head^T: [hidden.rows, vocab_size], allocated from `memory`. Throws as hidden().
  [[nodiscard]] Activation logits(Tensor hidden, ActivationMemory& memory);

  /// Bytes that an arena needs for hidden() with at most `rows` rows followed by logits() of at
  /// most `logit_rows` of them. Found by placing the results of a pass that computes nothing.
  [[nodiscard]] static int64_t arena_bytes(const ModelWeights& weights, ForwardShape shape,
                                           DeviceKind device, int64_t rows, int64_t logit_rows);

 private:
  struct Layer {
    DeviceVector attn_norm;
    QkvWeights qkv;
    WeightView o;
    DeviceVector ffn_norm;
    WeightView gate, up, down;
  };
  [[nodiscard]] Activation op_by_op(int64_t rows);
  [[nodiscard]] Activation attention_op_by_op(int64_t index, Activation x);
  [[nodiscard]] Activation ffn_op_by_op(const Layer& layer, Activation x);
  [[nodiscard]] Activation fused(int64_t rows);
  void fused_layer(size_t index, NormedInput& in);
  [[nodiscard]] Activation scratch_of(int64_t rows, int64_t columns);
  /// out.residual += x W^T of all ranks, and its norm.
  void fused_residual(Tensor x, const WeightView& w, const NormedInput& out, NormUse use);
  [[nodiscard]] Activation norm(Tensor x, DeviceVector weight);
  [[nodiscard]] Activation product(Tensor x, const WeightView& w);
  [[nodiscard]] Activation product_of_all_ranks(Tensor x, const WeightView& w);

  Ops& ops_;
  ActivationMemory& memory_;
  Communicator* communicator_;
  ForwardShape shape_;
  int64_t hidden_size_;
  int64_t vocab_size_;
  WeightView embed_;
  WeightView lm_head_;
  DeviceVector final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace triptych
