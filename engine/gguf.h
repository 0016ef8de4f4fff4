// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// GGUF: metadata and tensor infos of a GGUF file, versions 2 and 3, little endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kernels/common/dtype.h"

namespace triptych {

/// Metadata value types, numbered as in the file.
enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

/// One metadata value, still in the file's bytes: all its lengths have been checked.
struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element = GgufType::kUint8;  ///< Of an array.
  uint64_t count = 1;                   ///< Elements of an array.
  std::span<const std::byte> bytes;     ///< Scalar; text of a string; elements of an array.
};

struct GgufTensor {
  std::string_view name;
  std::array<int64_t, 4> dims{};  ///< Outermost first (the file has them innermost first).
  size_t num_dims = 0;
  DType dtype = DType::kF32;
  uint64_t offset = 0;  ///< In the data section.
  std::span<const std::byte> data;

  [[nodiscard]] std::span<const int64_t> shape() const { return {dims.data(), num_dims}; }
};

/// Views into the bytes given to parse(); they must outlive it.
class Gguf {
 public:
  /// Reads everything but the tensor data. Allocates in proportion to what was really read.
  /// Errors: kCorrupt naming the key or tensor and both numbers; kUnsupported (version 1, big
  /// endian, tensor type). `where` names the file in errors. Source: the GGUF specification in the
  /// ggml repository, docs/gguf.md.
  [[nodiscard]] static Result<Gguf> parse(std::span<const std::byte> bytes, std::string where);

  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  /// Typed lookups: nothing if the key is absent. Errors: kCorrupt if it has another type.
  [[nodiscard]] Result<std::optional<int64_t>> integer(std::string_view key) const;
  [[nodiscard]] Result<std::optional<double>> number(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string_view>> string(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::vector<std::string_view>>> strings(
      std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::vector<int64_t>>> integers(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::vector<double>>> numbers(std::string_view key) const;

  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  std::string where_;
  std::unordered_map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace triptych
