// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Checkpoint: named tensors of a model on disk (GGUF, safetensors) or made from a seed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/model_config.h"
#include "kernels/common/dtype.h"

namespace triptych {

class Tokenizer;

/// Where a model comes from; exactly one of the two is set.
struct ModelRef {
  std::filesystem::path path{};  ///< A .gguf file or a Hugging Face directory.
  std::string synthetic{};       ///< An architecture of synthetic_config().
  uint64_t seed = 1;             ///< Synthetic only.
  int64_t layers = 0;            ///< Synthetic only: overrides num_layers when > 0.
};

/// The tensors of a model under the names of this project:
///   "embed", "final_norm", "lm_head" (absent if tied),
///   "layers.<i>.{attn_norm,q,k,v,o,ffn_norm,gate,up,down}" and, where the family has them,
///   "layers.<i>.{q_bias,k_bias,v_bias,q_norm,k_norm}".
/// Matrices are [rows = outputs, columns = inputs]. Tensors of files are views into the mapping.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  /// Errors: kNotFound; kCorrupt if the stored shape is not the one the config implies (the message
  /// names tensor, expected and found shape).
  [[nodiscard]] virtual Result<WeightView> tensor(std::string_view name) const = 0;
  /// The type tensor() would have, without making or reading its values. Errors: those of tensor().
  [[nodiscard]] virtual Result<DType> dtype(std::string_view name) const;
  /// The tokenizer stored with the model; null if there is none (synthetic).
  [[nodiscard]] virtual std::shared_ptr<const Tokenizer> tokenizer() const = 0;
  /// Identity of the content: hash of the files, or of the synthetic parameters.
  [[nodiscard]] virtual std::string hash() const = 0;
  /// "gguf:<file name>", "safetensors:<dir name>", "synthetic:<arch>"; "synthetic:<dir name>" for
  /// what write_synthetic_directory() wrote.
  [[nodiscard]] virtual std::string origin() const = 0;
};

/// Opens and validates everything but the tensor values. A file that lies about sizes or offsets
/// gives kCorrupt naming the tensor and both numbers; nothing is allocated beyond the file's size.
[[nodiscard]] Result<std::shared_ptr<const Checkpoint>> open_checkpoint(const ModelRef& ref);

[[nodiscard]] Result<std::shared_ptr<const Checkpoint>> open_gguf(
    const std::filesystem::path& path);
/// config.json + *.safetensors (one file, or model.safetensors.index.json) + tokenizer.json.
[[nodiscard]] Result<std::shared_ptr<const Checkpoint>> open_hf_directory(
    const std::filesystem::path& path);
[[nodiscard]] Result<std::shared_ptr<const Checkpoint>> open_synthetic(const ModelRef& ref);

}  // namespace triptych
