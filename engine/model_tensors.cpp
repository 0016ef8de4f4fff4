// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_tensors.h"

namespace triptych {

Status for_each_tensor(const ModelConfig& config,
                       const std::function<Status(const TensorSpec&)>& visit) {
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.num_q_heads * config.head_dim;
  const int64_t kv = config.num_kv_heads * config.head_dim;
  const int64_t mlp = config.intermediate_size;
  TRIPTYCH_RETURN_IF_ERROR(visit({"embed", config.vocab_size, hidden}));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "attn_norm", 1, hidden, true}));
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "q", q, hidden}));
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "k", kv, hidden}));
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "v", kv, hidden}));
    if (config.qkv_bias) {
      TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "q_bias", 1, q, true}));
      TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "k_bias", 1, kv, true}));
      TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "v_bias", 1, kv, true}));
    }
    if (config.qk_norm) {
      TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "q_norm", 1, config.head_dim, true}));
      TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "k_norm", 1, config.head_dim, true}));
    }
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "o", hidden, q}));
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "ffn_norm", 1, hidden, true}));
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "gate", mlp, hidden}));
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "up", mlp, hidden}));
    TRIPTYCH_RETURN_IF_ERROR(visit({prefix + "down", hidden, mlp}));
  }
  TRIPTYCH_RETURN_IF_ERROR(visit({"final_norm", 1, hidden, true}));
  if (config.tie_word_embeddings) return {};
  return visit({"lm_head", config.vocab_size, hidden});
}

}  // namespace triptych
