// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/step_cost.h"

#include "engine/model_runner.h"

namespace triptych {

KernelCost step_cost(const ModelWeights& weights, const EngineOptions& options, int64_t batch,
                     int64_t context) {
  const ModelConfig& c = weights.config;
  const int64_t kv_token = kv_shape(c, options).token_bytes();
  const int64_t embed_row = row_bytes(weights.embed.dtype, weights.embed.columns);
  // The embedding table is looked up, not multiplied; a tied one is multiplied as the lm_head.
  int64_t multiplied = weights.lm_head.rows * weights.lm_head.columns;
  for (const LayerWeights& w : weights.layers) {
    for (const WeightView* m : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down}) {
      multiplied += m->rows * m->columns;
    }
  }
  const int64_t attended = c.attended_tokens(context);  // summed over the layers
  const int64_t attention = 4 * attended * c.num_q_heads * c.head_dim;
  return {.bytes_read = weights.bytes_per_decode_step() +
                        batch * (embed_row + attended * (kv_token / c.num_layers)),
          .bytes_written = batch * kv_token,
          .flops = batch * (2 * multiplied + attention)};
}

}  // namespace triptych
