// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/file_checkpoint.h"

#include <algorithm>

#include "base/hash.h"

namespace triptych {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace

Status FileCheckpoint::add(const TensorSpec& spec, const StoredTensor& stored) {
  const int64_t matrix[] = {spec.rows, spec.columns};
  const auto expected = std::span<const int64_t>(matrix).subspan(spec.is_vector ? 1 : 0);
  if (!std::equal(expected.begin(), expected.end(), stored.shape.begin(), stored.shape.end())) {
    return fail(ErrorCode::kCorrupt,
                "tensor \"" + std::string(stored.name) + "\" has shape " +
                    shape_text(stored.shape) + ", expected " + shape_text(expected) +
                    " from the model's configuration",
                std::string(stored.where));
  }
  if (spec.is_vector && dtype_info(stored.dtype).block_elements != 1) {
    return fail(ErrorCode::kUnsupported,
                "norm or bias \"" + std::string(stored.name) + "\" has the quantized type " +
                    std::string(dtype_info(stored.dtype).name),
                std::string(stored.where));
  }
  views_[spec.name] = {stored.data, stored.dtype, spec.rows, spec.columns};
  return {};
}

Result<WeightView> FileCheckpoint::tensor(std::string_view name) const {
  const auto found = views_.find(std::string(name));
  if (found == views_.end()) {
    return fail(ErrorCode::kNotFound, "no tensor \"" + std::string(name) + "\"", origin_);
  }
  return found->second;
}

std::string FileCheckpoint::hash() const {
  std::call_once(hashed_, [this] {
    std::string all;
    for (const MappedFile& file : files_) all += content_hash(file.bytes());
    hash_ = files_.size() == 1 ? all : content_hash(all);
  });
  return hash_;
}

}  // namespace triptych
