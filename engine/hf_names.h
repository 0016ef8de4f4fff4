// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Names of tensors and files in a Hugging Face directory.
#pragma once

#include <string>
#include <string_view>

namespace triptych {

inline constexpr const char* kHfOneFile = "model.safetensors";
inline constexpr const char* kHfIndexFile = "model.safetensors.index.json";
/// Key of config.json that is true where the weights are random; other readers pass over it.
inline constexpr const char* kSyntheticKey = "triptych_synthetic";

/// Name in the file of a tensor that carries our name (engine/checkpoint.h):
/// "layers.3.q" -> "model.layers.3.self_attn.q_proj.weight".
[[nodiscard]] std::string hf_tensor_name(std::string_view name);

}  // namespace triptych
