// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/strings.h"
#include "engine/json.h"

namespace triptych {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

constexpr uint64_t kPrefixBytes = 8;  // length of the header, u64

struct StoredType {
  std::string_view name;
  int64_t bytes;
  std::optional<DType> dtype;
};
// The others are listed so that a file that holds them beside the model's weights can be checked.
constexpr std::array<StoredType, 15> kStoredTypes = {{
    {"F32", 4, DType::kF32},
    {"F16", 2, DType::kF16},
    {"BF16", 2, DType::kBF16},
    {"F64", 8, {}},
    {"I64", 8, {}},
    {"U64", 8, {}},
    {"I32", 4, {}},
    {"U32", 4, {}},
    {"I16", 2, {}},
    {"U16", 2, {}},
    {"I8", 1, {}},
    {"U8", 1, {}},
    {"BOOL", 1, {}},
    {"F8_E4M3", 1, {}},
    {"F8_E5M2", 1, {}},
}};

Unexpected corrupt(const std::string& name, std::string_view message, const std::string& where) {
  return fail(ErrorCode::kCorrupt, "tensor \"" + name + "\" " + std::string(message), where);
}

/// An array of integers in [0, 2^63) under `key`, e.g. a shape.
Result<std::vector<int64_t>> read_sizes(const Json& info, const char* key, const std::string& name,
                                        const std::string& where) {
  TRIPTYCH_TRY(const Json* found, json_member(info, key, Json::value_t::array, where));
  if (found == nullptr) return corrupt(name, std::string("has no \"") + key + "\"", where);
  std::vector<int64_t> sizes;
  for (const Json& size : *found) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) {
      return corrupt(name,
                     std::string("has ") + size.dump() + " in \"" + key +
                         "\", expected an integer from 0 to 2^63 - 1",
                     where);
    }
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

Result<int64_t> size_in_bytes(const SafetensorsTensor& tensor, int64_t element_bytes,
                              const std::string& where) {
  int64_t bytes = element_bytes;
  for (const int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return corrupt(tensor.name,
                     str_format("has a dimension of %lld, which makes more than 2^63 bytes",
                                static_cast<long long>(size)),
                     where);
    }
  }
  return bytes;
}

Result<SafetensorsTensor> read_tensor(const std::string& name, const Json& info,
                                      std::span<const std::byte> data, const std::string& where) {
  SafetensorsTensor tensor;
  tensor.name = name;
  TRIPTYCH_TRY(const auto type, json_string(info, "dtype", where));
  if (!type) return corrupt(name, "has no \"dtype\"", where);
  tensor.type = *type;
  const auto* known = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                   [&](const StoredType& each) { return each.name == *type; });
  if (known == kStoredTypes.end()) {
    return fail(ErrorCode::kUnsupported,
                "tensor \"" + name + "\" has type \"" + *type + "\", expected F32, F16 or BF16",
                where);
  }
  tensor.dtype = known->dtype;
  TRIPTYCH_TRY(tensor.shape, read_sizes(info, "shape", name, where));
  TRIPTYCH_TRY(const auto offsets, read_sizes(info, "data_offsets", name, where));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return corrupt(name, "needs \"data_offsets\": [begin, end] with begin <= end", where);
  }
  TRIPTYCH_TRY(const int64_t expected, size_in_bytes(tensor, known->bytes, where));
  if (offsets[1] - offsets[0] != expected) {
    return corrupt(name,
                   str_format("has %lld bytes of data, its type and shape need %lld",
                              static_cast<long long>(offsets[1] - offsets[0]),
                              static_cast<long long>(expected)),
                   where);
  }
  if (static_cast<uint64_t>(offsets[1]) > data.size()) {
    return corrupt(name,
                   str_format("ends at %lld of a data section of %zu bytes",
                              static_cast<long long>(offsets[1]), data.size()),
                   where);
  }
  tensor.data = data.subspan(static_cast<size_t>(offsets[0]), static_cast<size_t>(expected));
  return tensor;
}

/// The format forbids both overlap and holes, so each tensor starts where the one before ends.
Status check_coverage(std::span<const SafetensorsTensor> tensors, std::span<const std::byte> data,
                      const std::string& where) {
  size_t end = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const auto begin = static_cast<size_t>(tensor.data.data() - data.data());
    if (begin != end) {
      return corrupt(
          tensor.name,
          str_format("starts at %zu, expected %zu, the end of the one before", begin, end), where);
    }
    end += tensor.data.size();
  }
  if (end == data.size()) return {};
  return fail(ErrorCode::kCorrupt,
              str_format("the tensors end at %zu of a data section of %zu bytes", end, data.size()),
              where);
}

}  // namespace

Result<std::vector<SafetensorsTensor>> parse_safetensors(std::span<const std::byte> bytes,
                                                         const std::string& where) {
  if (bytes.size() < kPrefixBytes) {
    return fail(ErrorCode::kCorrupt,
                str_format("the file has %zu bytes, a safetensors file at least 8", bytes.size()),
                where);
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kPrefixBytes);
  if (header_bytes > bytes.size() - kPrefixBytes) {
    return fail(
        ErrorCode::kCorrupt,
        str_format("the header has %llu bytes, the file only %zu after its length",
                   static_cast<unsigned long long>(header_bytes), bytes.size() - kPrefixBytes),
        where);
  }
  const auto header = bytes.subspan(kPrefixBytes, header_bytes);
  const auto data = bytes.subspan(kPrefixBytes + header_bytes);
  TRIPTYCH_TRY(
      const Json root,
      parse_json_object({reinterpret_cast<const char*>(header.data()), header.size()}, where));
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, info] : root.items()) {
    if (name == "__metadata__") continue;
    TRIPTYCH_TRY(auto tensor, read_tensor(name, info, data, where));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              // An empty tensor shares its start with the next one and comes first.
              return a.data.data() != b.data.data() ? a.data.data() < b.data.data()
                                                    : a.data.size() < b.data.size();
            });
  TRIPTYCH_RETURN_IF_ERROR(check_coverage(tensors, data, where));
  return tensors;
}

}  // namespace triptych
