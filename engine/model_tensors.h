// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Which tensors a model must have, and of which shape.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "engine/model_config.h"

namespace triptych {

/// One tensor as the config implies it, under the name of engine/checkpoint.h. A vector (norm or
/// bias) has one row.
struct TensorSpec {
  std::string name;
  int64_t rows = 0;
  int64_t columns = 0;
  bool is_vector = false;
};

/// Calls `visit` for every tensor that `config` implies, layer by layer, until it returns an error.
/// A visitor instead of a list, so that a config that lies about its layers costs no memory.
[[nodiscard]] Status for_each_tensor(const ModelConfig& config,
                                     const std::function<Status(const TensorSpec&)>& visit);

}  // namespace triptych
