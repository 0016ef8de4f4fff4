// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/strings.h"

namespace triptych {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are copied as they are");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr int kMaxArrayDepth = 4;  // bounds recursion; no known writer nests deeper than 2

// By GgufType: bytes of a scalar, or the least bytes of a string or array.
constexpr std::array<uint64_t, 13> kTypeBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
constexpr std::array<const char*, 13> kTypeNames = {
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64"};

struct GgmlType {
  uint32_t id;
  const char* name;
  std::optional<DType> dtype;
};
// Those that are not read are listed so that an error can name them.
constexpr std::array<GgmlType, 33> kGgmlTypes = {{
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
    {40, "NVFP4", {}},
}};

unsigned long long print(uint64_t value) { return value; }

std::string quoted(std::string_view name) { return "\"" + std::string(name) + "\""; }

/// Walks the bytes of a file; every step is checked against what is left.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  [[nodiscard]] uint64_t offset() const { return offset_; }
  [[nodiscard]] uint64_t left() const { return bytes_.size() - offset_; }

  Unexpected corrupt(std::string message) const {
    return fail(ErrorCode::kCorrupt, std::move(message), where_);
  }

  Result<std::span<const std::byte>> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      return corrupt(str_format("%.*s needs %llu bytes at offset %llu, the file has %llu left",
                                static_cast<int>(what.size()), what.data(), print(count),
                                print(offset_), print(left())));
    }
    const auto taken = bytes_.subspan(offset_, count);
    offset_ += count;
    return taken;
  }

  template <class T>
  Result<T> read(std::string_view what) {
    TRIPTYCH_TRY(const auto raw, take(sizeof(T), what));
    T value;
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }

  Result<std::string_view> read_string(std::string_view what) {
    TRIPTYCH_TRY(const auto length, read<uint64_t>(what));
    TRIPTYCH_TRY(const auto raw, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  uint64_t offset_ = 0;
};

Result<GgufType> read_type(Cursor& cursor, std::string_view key) {
  TRIPTYCH_TRY(const auto type, cursor.read<uint32_t>(key));
  if (type >= kTypeBytes.size()) {
    return cursor.corrupt(quoted(key) + str_format(" has value type %u, expected 0 to 12", type));
  }
  return static_cast<GgufType>(type);
}

Result<GgufValue> read_value(Cursor& cursor, GgufType type, std::string_view key, int depth) {
  GgufValue value;
  value.type = type;
  if (type == GgufType::kString) {
    TRIPTYCH_TRY(const auto text, cursor.read_string(key));
    value.bytes = std::as_bytes(std::span(text));
    return value;
  }
  if (type != GgufType::kArray) {
    TRIPTYCH_TRY(value.bytes, cursor.take(kTypeBytes[static_cast<size_t>(type)], key));
    return value;
  }

  if (depth >= kMaxArrayDepth) {
    return cursor.corrupt(quoted(key) + str_format(" nests arrays deeper than %d", kMaxArrayDepth));
  }
  TRIPTYCH_TRY(value.element, read_type(cursor, key));
  TRIPTYCH_TRY(value.count, cursor.read<uint64_t>(key));
  const uint64_t element_bytes = kTypeBytes[static_cast<size_t>(value.element)];
  if (value.count > cursor.left() / element_bytes) {
    return cursor.corrupt(quoted(key) + str_format(" has %llu elements of at least %llu bytes, the "
                                                   "file has %llu bytes left",
                                                   print(value.count), print(element_bytes),
                                                   print(cursor.left())));
  }
  if (value.element != GgufType::kString && value.element != GgufType::kArray) {
    TRIPTYCH_TRY(value.bytes, cursor.take(value.count * element_bytes, key));
    return value;
  }
  Cursor elements = cursor;
  for (uint64_t i = 0; i < value.count; ++i) {
    TRIPTYCH_RETURN_IF_ERROR(read_value(elements, value.element, key, depth + 1));
  }
  TRIPTYCH_TRY(value.bytes, cursor.take(elements.offset() - cursor.offset(), key));
  return value;
}

Result<DType> read_dtype(Cursor& cursor, std::string_view name, const std::string& where) {
  TRIPTYCH_TRY(const auto id, cursor.read<uint32_t>(name));
  const auto* known = std::find_if(kGgmlTypes.begin(), kGgmlTypes.end(),
                                   [id](const GgmlType& type) { return type.id == id; });
  if (known != kGgmlTypes.end() && known->dtype) return *known->dtype;
  return fail(ErrorCode::kUnsupported,
              "tensor " + quoted(name) + str_format(" has type %u", id) +
                  (known != kGgmlTypes.end() ? std::string(" (") + known->name + ")" : "") +
                  ", expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K",
              where);
}

struct TensorInfo {
  GgufTensor tensor;
  uint64_t bytes = 0;
};

Result<TensorInfo> read_tensor_info(Cursor& cursor, const std::string& where) {
  TensorInfo info;
  GgufTensor& tensor = info.tensor;
  TRIPTYCH_TRY(tensor.name, cursor.read_string("the name of a tensor"));
  const std::string label = "tensor " + quoted(tensor.name);
  TRIPTYCH_TRY(const auto num_dims, cursor.read<uint32_t>(label));
  if (num_dims == 0 || num_dims > tensor.dims.size()) {
    return cursor.corrupt(label + str_format(" has %u dimensions, expected 1 to 4", num_dims));
  }
  tensor.num_dims = num_dims;
  int64_t elements = 1;
  for (size_t i = num_dims; i-- > 0;) {
    TRIPTYCH_TRY(const auto dim, cursor.read<uint64_t>(label));
    if (dim == 0) return cursor.corrupt(label + " has a dimension of 0, expected at least 1");
    if (dim > INT64_MAX || __builtin_mul_overflow(elements, static_cast<int64_t>(dim), &elements)) {
      return cursor.corrupt(label + str_format(" has a dimension of %llu, which makes more than "
                                               "2^63 elements",
                                               print(dim)));
    }
    tensor.dims[i] = static_cast<int64_t>(dim);
  }
  TRIPTYCH_TRY(tensor.dtype, read_dtype(cursor, tensor.name, where));
  TRIPTYCH_TRY(tensor.offset, cursor.read<uint64_t>(label));

  const DTypeInfo& dtype = dtype_info(tensor.dtype);
  const int64_t columns = tensor.dims[num_dims - 1];
  if (columns % dtype.block_elements != 0) {
    return cursor.corrupt(label + str_format(" has rows of %lld elements, expected a multiple of "
                                             "the %s block, %d",
                                             static_cast<long long>(columns), dtype.name.data(),
                                             dtype.block_elements));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / dtype.block_elements, int64_t{dtype.block_bytes}, &bytes)) {
    return cursor.corrupt(label + str_format(" has %lld elements, more than 2^63 bytes",
                                             static_cast<long long>(elements)));
  }
  info.bytes = static_cast<uint64_t>(bytes);
  return info;
}

Status place_tensor(TensorInfo& info, std::span<const std::byte> data, uint64_t alignment,
                    const std::string& where) {
  GgufTensor& tensor = info.tensor;
  if (tensor.offset % alignment != 0) {
    return fail(ErrorCode::kCorrupt,
                "tensor " + quoted(tensor.name) +
                    str_format(" has offset %llu, expected a multiple of the alignment, %llu",
                               print(tensor.offset), print(alignment)),
                where);
  }
  if (tensor.offset > data.size() || info.bytes > data.size() - tensor.offset) {
    return fail(ErrorCode::kCorrupt,
                "tensor " + quoted(tensor.name) +
                    str_format(" has %llu bytes at offset %llu of a data section of %llu bytes",
                               print(info.bytes), print(tensor.offset), print(data.size())),
                where);
  }
  tensor.data = data.subspan(tensor.offset, info.bytes);
  return {};
}

Status check_overlap(std::span<const GgufTensor> tensors, const std::string& where) {
  std::vector<const GgufTensor*> order;
  order.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = *order[i - 1];
    if (before.offset + before.data.size() > order[i]->offset) {
      return fail(
          ErrorCode::kCorrupt,
          "tensor " + quoted(order[i]->name) +
              str_format(" starts at offset %llu, inside tensor ", print(order[i]->offset)) +
              quoted(before.name) +
              str_format(", which ends at %llu", print(before.offset + before.data.size())),
          where);
    }
  }
  return {};
}

struct Header {
  uint64_t num_tensors = 0;
  uint64_t num_keys = 0;
};

Result<Header> read_header(Cursor& cursor, const std::string& where) {
  TRIPTYCH_TRY(const auto magic, cursor.read<uint32_t>("the magic number"));
  if (magic != kMagic) {
    return cursor.corrupt(str_format("starts with 0x%08x, expected \"GGUF\"", magic));
  }
  TRIPTYCH_TRY(const auto version, cursor.read<uint32_t>("the version"));
  if (version != 2 && version != 3) {
    const bool swapped = version == 0x02000000 || version == 0x03000000;
    return fail(ErrorCode::kUnsupported,
                swapped ? "the file is big endian, expected little endian"
                        : str_format("GGUF version %u, expected 2 or 3", version),
                where);
  }
  Header header;
  TRIPTYCH_TRY(header.num_tensors, cursor.read<uint64_t>("the tensor count"));
  TRIPTYCH_TRY(header.num_keys, cursor.read<uint64_t>("the key count"));
  // The least bytes of a pair: length, type and one byte; of a tensor: length, dims, type, offset.
  constexpr uint64_t kLeastPair = 8 + 4 + 1;
  constexpr uint64_t kLeastTensor = 8 + 4 + 8 + 4 + 8;
  if (header.num_keys > cursor.left() / kLeastPair) {
    return cursor.corrupt(str_format("the header counts %llu keys, the file has %llu bytes left",
                                     print(header.num_keys), print(cursor.left())));
  }
  if (header.num_tensors > cursor.left() / kLeastTensor) {
    return cursor.corrupt(str_format("the header counts %llu tensors, the file has %llu bytes left",
                                     print(header.num_tensors), print(cursor.left())));
  }
  return header;
}

Result<uint64_t> read_alignment(const Gguf& file) {
  TRIPTYCH_TRY(const auto given, file.integer("general.alignment"));
  if (!given) return kDefaultAlignment;
  if (*given < 8 || *given > int64_t{1} << 30 ||
      !std::has_single_bit(static_cast<uint64_t>(*given))) {
    return fail(ErrorCode::kCorrupt,
                str_format("\"general.alignment\" is %lld, expected a power of two of at least 8",
                           static_cast<long long>(*given)),
                file.where());
  }
  return static_cast<uint64_t>(*given);
}

template <class T>
T load(std::span<const std::byte> bytes, uint64_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

/// Element `index` of `type` in `bytes`, or nothing if it is no integer below 2^63.
std::optional<int64_t> load_integer(GgufType type, std::span<const std::byte> bytes,
                                    uint64_t index) {
  switch (type) {
    case GgufType::kUint8:
      return load<uint8_t>(bytes, index);
    case GgufType::kInt8:
      return load<int8_t>(bytes, index);
    case GgufType::kUint16:
      return load<uint16_t>(bytes, index);
    case GgufType::kInt16:
      return load<int16_t>(bytes, index);
    case GgufType::kUint32:
      return load<uint32_t>(bytes, index);
    case GgufType::kInt32:
      return load<int32_t>(bytes, index);
    case GgufType::kInt64:
      return load<int64_t>(bytes, index);
    case GgufType::kUint64: {
      const auto value = load<uint64_t>(bytes, index);
      if (value > INT64_MAX) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

Unexpected wrong_type(const Gguf& file, std::string_view key, const GgufValue& value,
                      const char* expected) {
  std::string found = kTypeNames[static_cast<size_t>(value.type)];
  if (value.type == GgufType::kArray) {
    found += std::string(" of ") + kTypeNames[static_cast<size_t>(value.element)];
  }
  return fail(ErrorCode::kCorrupt, quoted(key) + " is of type " + found + ", expected " + expected,
              file.where());
}

}  // namespace

Result<Gguf> Gguf::parse(std::span<const std::byte> bytes, std::string where) {
  Gguf file;
  file.where_ = std::move(where);
  Cursor cursor(bytes, file.where_);
  TRIPTYCH_TRY(const Header header, read_header(cursor, file.where_));

  for (uint64_t i = 0; i < header.num_keys; ++i) {
    TRIPTYCH_TRY(const auto key, cursor.read_string(str_format("metadata key %llu", print(i))));
    TRIPTYCH_TRY(const auto type, read_type(cursor, key));
    TRIPTYCH_TRY(const auto value, read_value(cursor, type, key, 0));
    if (!file.metadata_.emplace(key, value).second) {
      return cursor.corrupt("key " + quoted(key) + " appears twice");
    }
  }

  std::vector<TensorInfo> infos;
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < header.num_tensors; ++i) {
    TRIPTYCH_TRY(auto info, read_tensor_info(cursor, file.where_));
    if (!names.insert(info.tensor.name).second) {
      return cursor.corrupt("tensor " + quoted(info.tensor.name) + " appears twice");
    }
    infos.push_back(info);
  }

  TRIPTYCH_TRY(const uint64_t alignment, read_alignment(file));
  const uint64_t start = (cursor.offset() + alignment - 1) / alignment * alignment;
  if (start > bytes.size() && !infos.empty()) {
    return cursor.corrupt(str_format("the data section starts at %llu, the file has %llu bytes",
                                     print(start), print(bytes.size())));
  }
  const auto data = bytes.subspan(std::min<uint64_t>(start, bytes.size()));
  for (TensorInfo& info : infos) {
    TRIPTYCH_RETURN_IF_ERROR(place_tensor(info, data, alignment, file.where_));
    file.tensors_.push_back(info.tensor);
  }
  TRIPTYCH_RETURN_IF_ERROR(check_overlap(file.tensors_, file.where_));
  return file;
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

Result<std::optional<int64_t>> Gguf::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>{};
  const auto loaded = load_integer(value->type, value->bytes, 0);
  if (!loaded) return wrong_type(*this, key, *value, "an integer below 2^63");
  return loaded;
}

Result<std::optional<double>> Gguf::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>{};
  if (value->type == GgufType::kFloat32) return std::optional<double>(load<float>(value->bytes));
  if (value->type == GgufType::kFloat64) return std::optional<double>(load<double>(value->bytes));
  const auto loaded = load_integer(value->type, value->bytes, 0);
  if (!loaded) return wrong_type(*this, key, *value, "a number");
  return std::optional<double>(static_cast<double>(*loaded));
}

Result<std::optional<bool>> Gguf::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>{};
  if (value->type != GgufType::kBool) return wrong_type(*this, key, *value, "a bool");
  return std::optional<bool>(load<uint8_t>(value->bytes) != 0);
}

Result<std::optional<std::string_view>> Gguf::string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string_view>{};
  if (value->type != GgufType::kString) return wrong_type(*this, key, *value, "a string");
  return std::optional<std::string_view>(
      std::in_place, reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

Result<std::optional<std::vector<std::string_view>>> Gguf::strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<std::string_view>>{};
  if (value->type != GgufType::kArray || value->element != GgufType::kString) {
    return wrong_type(*this, key, *value, "an array of strings");
  }
  std::vector<std::string_view> texts;
  texts.reserve(value->count);  // parse() has seen every one of them
  Cursor cursor(value->bytes, where_);
  for (uint64_t i = 0; i < value->count; ++i) {
    TRIPTYCH_TRY(const auto text, cursor.read_string(key));
    texts.push_back(text);
  }
  return std::optional(std::move(texts));
}

Result<std::optional<std::vector<int64_t>>> Gguf::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>{};
  if (value->type != GgufType::kArray) {
    return wrong_type(*this, key, *value, "an array of integers");
  }
  std::vector<int64_t> numbers;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = load_integer(value->element, value->bytes, i);
    if (!number) return wrong_type(*this, key, *value, "an array of integers");
    numbers.push_back(*number);
  }
  return std::optional(std::move(numbers));
}

Result<std::optional<std::vector<double>>> Gguf::numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<double>>{};
  if (value->type != GgufType::kArray || value->element != GgufType::kFloat32) {
    return wrong_type(*this, key, *value, "an array of 32-bit floats");
  }
  std::vector<double> numbers;
  for (uint64_t i = 0; i < value->count; ++i) {
    numbers.push_back(load<float>(value->bytes.subspan(i * sizeof(float))));
  }
  return std::optional(std::move(numbers));
}

}  // namespace triptych
