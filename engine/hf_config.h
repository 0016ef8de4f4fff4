// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face directory.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/model_config.h"

namespace triptych {

/// Reads the config of a LlamaForCausalLM, in the form of Transformers 4 (`rope_theta`,
/// `rope_scaling`) or 5 (`rope_parameters`). Errors: kCorrupt naming a missing or contradictory
/// field; kUnsupported for every setting that would change the results.
[[nodiscard]] Result<ModelConfig> parse_hf_config(std::string_view text, std::string name,
                                                  const std::string& where);

}  // namespace triptych
