// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// safetensors: the tensors of one file as views into its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/common/dtype.h"

namespace triptych {

struct SafetensorsTensor {
  std::string name;
  std::string type;            ///< As in the file: "F16", "BF16", "I64", ...
  std::optional<DType> dtype;  ///< Nothing for a type that is not read here.
  std::vector<int64_t> shape;  ///< Outermost first; empty for a scalar.
  std::span<const std::byte> data;
};

/// The tensors of a file, ordered by where their data lies. Errors: kCorrupt naming the tensor and
/// both numbers (header longer than the file, offsets that overlap, leave a hole or end beyond the
/// file, sizes that do not follow from type and shape); kUnsupported for a type whose size is not
/// known. Source: the format description of huggingface/safetensors.
[[nodiscard]] Result<std::vector<SafetensorsTensor>> parse_safetensors(
    std::span<const std::byte> bytes, const std::string& where);

}  // namespace triptych
