// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint.h"

namespace triptych {

Result<DType> Checkpoint::dtype(std::string_view name) const {
  TRIPTYCH_TRY(const WeightView view, tensor(name));
  return view.dtype;
}

Result<std::shared_ptr<const Checkpoint>> open_checkpoint(const ModelRef& ref) {
  if (ref.path.empty() == ref.synthetic.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                ref.path.empty() ? "a model needs a path or a synthetic architecture"
                                 : "a model has either a path or a synthetic architecture");
  }
  if (!ref.synthetic.empty()) return open_synthetic(ref);
  std::error_code error;
  const auto status = std::filesystem::status(ref.path, error);
  if (!std::filesystem::status_known(status)) {  // there or not, this user cannot know
    return fail(ErrorCode::kIo, "cannot be opened: " + error.message(), ref.path.string());
  }
  if (!std::filesystem::exists(status)) {
    return fail(ErrorCode::kNotFound, "no such file or directory", ref.path.string());
  }
  if (std::filesystem::is_directory(status)) return open_hf_directory(ref.path);
  if (ref.path.extension() == ".gguf") return open_gguf(ref.path);
  return fail(ErrorCode::kUnsupported,
              "expected a .gguf file or a directory with config.json and safetensors",
              ref.path.string());
}

}  // namespace triptych
