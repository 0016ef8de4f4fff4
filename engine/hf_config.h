// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face directory, read and written.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/json.h"
#include "engine/model_config.h"

namespace triptych {

/// Reads the config of a model of a known family, in the form of Transformers 4 (`rope_theta`,
/// `rope_scaling`) or 5 (`rope_parameters`). What a file leaves out has the default of its family's
/// config class. Errors: kCorrupt naming a missing or contradictory field; kUnsupported for every
/// setting that would change the results.
[[nodiscard]] Result<ModelConfig> parse_hf_config(std::string_view text, std::string name,
                                                  const std::string& where);

/// The config.json of `config`, in the form of Transformers 4, which 5 reads as well;
/// parse_hf_config gives the same model back. Every setting of its family is there, null where it
/// is off. `torch_dtype` is "float32", "float16" or "bfloat16". Precondition: rope_kind is
/// kHalfSplit.
[[nodiscard]] Json hf_config_json(const ModelConfig& config, std::string_view torch_dtype);

}  // namespace triptych
