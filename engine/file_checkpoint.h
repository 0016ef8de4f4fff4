// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// FileCheckpoint: a checkpoint whose tensors are views into mapped files, whatever their format.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/model_tensors.h"

namespace triptych {

/// A tensor as a file describes it. `shape` is outermost first.
struct StoredTensor {
  std::string_view name;   ///< In the file.
  std::string_view where;  ///< The file.
  std::span<const int64_t> shape;
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
};

class FileCheckpoint final : public Checkpoint {
 public:
  FileCheckpoint(ModelConfig config, std::string origin, std::vector<MappedFile> files,
                 std::shared_ptr<const Tokenizer> tokenizer)
      : config_(std::move(config)),
        origin_(std::move(origin)),
        files_(std::move(files)),
        tokenizer_(std::move(tokenizer)) {}

  /// Makes `stored`, which lies in one of the files, the tensor of `spec`.
  /// Errors: kCorrupt naming the tensor, the expected and the found shape; kUnsupported if `stored`
  /// is a norm or bias of a quantized type.
  [[nodiscard]] Status add(const TensorSpec& spec, const StoredTensor& stored);

  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] Result<WeightView> tensor(std::string_view name) const override;
  [[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  /// Reads every file once, on the first call.
  [[nodiscard]] std::string hash() const override;
  [[nodiscard]] std::string origin() const override { return origin_; }

 private:
  ModelConfig config_;
  std::string origin_;
  std::vector<MappedFile> files_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unordered_map<std::string, WeightView> views_;
  mutable std::once_flag hashed_;
  mutable std::string hash_;
};

}  // namespace triptych
