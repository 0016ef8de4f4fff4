// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/hf_names.h"

#include <unordered_map>

namespace triptych {

std::string hf_tensor_name(std::string_view name) {
  static const std::unordered_map<std::string_view, std::string_view> kNames = {
      {"embed", "model.embed_tokens.weight"},
      {"final_norm", "model.norm.weight"},
      {"lm_head", "lm_head.weight"},
      {"attn_norm", "input_layernorm.weight"},
      {"q", "self_attn.q_proj.weight"},
      {"k", "self_attn.k_proj.weight"},
      {"v", "self_attn.v_proj.weight"},
      {"q_bias", "self_attn.q_proj.bias"},
      {"k_bias", "self_attn.k_proj.bias"},
      {"v_bias", "self_attn.v_proj.bias"},
      {"q_norm", "self_attn.q_norm.weight"},
      {"k_norm", "self_attn.k_norm.weight"},
      {"o", "self_attn.o_proj.weight"},
      {"gate", "mlp.gate_proj.weight"},
      {"up", "mlp.up_proj.weight"},
      {"down", "mlp.down_proj.weight"},
      {"ffn_norm", "post_attention_layernorm.weight"}};
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return std::string(kNames.at(name));
  const size_t dot = name.find('.', kLayers.size());
  return "model." + std::string(name.substr(0, dot + 1)) +
         std::string(kNames.at(name.substr(dot + 1)));
}

}  // namespace triptych
