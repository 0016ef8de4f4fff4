// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// weight_shapes(): what load_weights() would give, without the numbers.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/weights.h"

namespace triptych {

/// The weights of `checkpoint` under `scheme` with every shape and type, so that bytes() and
/// make_shards() say what load_weights() and its shards would take, but all matrices have null data
/// and all vectors zeros. Reads no values; takes memory for the vectors only. Rows that do not fit
/// the groups of the scheme count in whole groups: load_weights() refuses them.
/// Errors: those of Checkpoint::dtype.
[[nodiscard]] Result<std::shared_ptr<const ModelWeights>> weight_shapes(
    std::shared_ptr<const Checkpoint> checkpoint, WeightScheme scheme);

}  // namespace triptych
