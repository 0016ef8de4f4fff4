// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// write_synthetic_directory: a synthetic model as a Hugging Face directory, for other engines.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "engine/model_config.h"
#include "kernels/common/dtype.h"

namespace triptych {

struct SyntheticDirectoryOptions {
  uint64_t seed = 1;
  DType dtype = DType::kF16;                ///< kF32, kF16 or kBF16.
  int64_t max_shard_bytes = 5'000'000'000;  ///< Tensor data of one file, as in Transformers.
  /// Set from outside: the call stops soon with an error. Null: cannot be interrupted.
  const std::atomic<bool>* interrupted = nullptr;
};

struct SyntheticDirectory {
  int64_t parameters = 0;
  int64_t bytes = 0;  ///< Of tensor data.
  int64_t num_files = 0;
  bool has_tokenizer = false;
};

/// Writes config.json, the safetensors files (with an index if there are several) and, for a
/// vocabulary of at least 256, a tokenizer of single bytes. In f32 and f16 the weights are exactly
/// those of the synthetic checkpoint of this config and seed; bf16 rounds them. Uses every core and
/// holds a few MiB for each, whatever the size of the model. The directory gets its name when it is
/// complete and on the device; after an error nothing of it is left, and what a killed process has
/// left of the same directory is removed. Errors: kInvalidArgument if `directory` exists; those of
/// validate(); kIo (no room, with the arithmetic; what the system refuses; interrupted).
[[nodiscard]] Result<SyntheticDirectory> write_synthetic_directory(
    const ModelConfig& config, const std::filesystem::path& directory,
    const SyntheticDirectoryOptions& options);

/// Whether `directory` is what write_synthetic_directory() makes of these: every file is there with
/// its size, and all but the weights themselves are compared; those are not read. Errors: kCorrupt
/// with the first file that is not as it should be.
[[nodiscard]] Status check_synthetic_directory(const ModelConfig& config,
                                               const std::filesystem::path& directory,
                                               const SyntheticDirectoryOptions& options);

}  // namespace triptych
