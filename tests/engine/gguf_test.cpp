// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/gguf.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/gguf_builder.h"

namespace triptych {
namespace {

Result<Gguf> parse(const std::string& bytes) {
  return Gguf::parse(std::as_bytes(std::span(bytes)), "test.gguf");
}

Error error_of(const std::string& bytes) {
  const auto file = parse(bytes);
  if (!file) return file.error();
  ADD_FAILURE() << "expected an error";
  return {};
}

void expect_corrupt(const std::string& bytes, std::string_view part) {
  const Error error = error_of(bytes);
  EXPECT_EQ(error.code, ErrorCode::kCorrupt) << error.message;
  EXPECT_EQ(error.where, "test.gguf");
  EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

void expect_unsupported(const std::string& bytes, std::string_view part) {
  const Error error = error_of(bytes);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported) << error.message;
  EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

/// Two f32 tensors of 8 and 16 elements, and one key of every kind.
GgufBuilder small_file() {
  GgufBuilder builder;
  builder.add("u8", GgufType::kUint8, raw<uint8_t>(200))
      .add("i8", GgufType::kInt8, raw<int8_t>(-5))
      .add("u16", GgufType::kUint16, raw<uint16_t>(60000))
      .add("i16", GgufType::kInt16, raw<int16_t>(-300))
      .add("u32", 7u)
      .add("i32", GgufType::kInt32, raw<int32_t>(-7))
      .add("u64", GgufType::kUint64, raw<uint64_t>(uint64_t{1} << 40))
      .add("i64", GgufType::kInt64, raw<int64_t>(-(int64_t{1} << 40)))
      .add("f32", 0.5f)
      .add("f64", GgufType::kFloat64, raw<double>(0.25))
      .add("flag", GgufType::kBool, raw<uint8_t>(1))
      .add("text", std::string_view("hello"))
      .add("texts", std::vector<std::string>{"a", "", "ccc"})
      .add("numbers", std::vector<int32_t>{1, -2, 3});
  builder.tensors.push_back({"first", {8}, 0, random_floats(8, 1)});
  builder.tensors.push_back({"second", {4, 4}, 0, random_floats(16, 2)});
  return builder;
}

TEST(Gguf, ReadsEveryTypeOfValue) {
  const std::string bytes = small_file().build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.has_value()) << file.error().to_string();
  const std::pair<const char*, int64_t> integers[] = {{"u8", 200},
                                                      {"i8", -5},
                                                      {"u16", 60000},
                                                      {"i16", -300},
                                                      {"u32", 7},
                                                      {"i32", -7},
                                                      {"u64", int64_t{1} << 40},
                                                      {"i64", -(int64_t{1} << 40)}};
  for (const auto& [key, expected] : integers) {
    EXPECT_EQ(*file->integer(key), expected) << key;
    EXPECT_EQ(*file->number(key), static_cast<double>(expected)) << key;
  }
  EXPECT_EQ(*file->number("f32"), 0.5);
  EXPECT_EQ(*file->number("f64"), 0.25);
  EXPECT_EQ(*file->boolean("flag"), true);
  EXPECT_EQ(*file->string("text"), "hello");
  EXPECT_EQ(*file->strings("texts"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(*file->integers("numbers"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(*file->integer("none"), std::nullopt);
  EXPECT_EQ(file->find("none"), nullptr);
}

TEST(Gguf, ReadsTensors) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = small_file();
    builder.version = version;
    const std::string bytes = builder.build();
    const auto file = parse(bytes);
    ASSERT_TRUE(file.has_value()) << file.error().to_string();
    ASSERT_EQ(file->tensors().size(), 2u);
    const GgufTensor& second = file->tensors()[1];
    EXPECT_EQ(second.name, "second");
    EXPECT_EQ(second.dtype, DType::kF32);
    EXPECT_EQ(std::vector<int64_t>(second.shape().begin(), second.shape().end()),
              (std::vector<int64_t>{4, 4}));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(second.data.data()), second.data.size()),
              random_floats(16, 2));
  }
}

TEST(Gguf, OutermostDimensionComesFirst) {
  GgufBuilder builder;
  builder.tensors.push_back({"t", {8, 3, 2}, 0, random_floats(48, 1)});
  const std::string bytes = builder.build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.has_value());
  const auto shape = file->tensors()[0].shape();
  EXPECT_EQ(std::vector<int64_t>(shape.begin(), shape.end()), (std::vector<int64_t>{2, 3, 8}));
}

TEST(Gguf, WrongTypesAreNamed) {
  const std::string bytes = small_file().build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.has_value());
  const auto number = file->integer("text");
  ASSERT_FALSE(number.has_value());
  EXPECT_EQ(number.error().message, "\"text\" is of type string, expected an integer below 2^63");
  EXPECT_FALSE(file->integer("f32").has_value());
  EXPECT_FALSE(file->integer("flag").has_value());
  EXPECT_FALSE(file->boolean("u8").has_value());
  EXPECT_FALSE(file->string("texts").has_value());
  EXPECT_FALSE(file->strings("numbers").has_value());
  EXPECT_FALSE(file->strings("text").has_value());
  EXPECT_FALSE(file->integers("texts").has_value());
  EXPECT_FALSE(file->integers("u32").has_value());
  EXPECT_FALSE(file->number("flag").has_value());
  GgufBuilder builder;
  builder.add("big", GgufType::kUint64, raw(~uint64_t{0}));
  const std::string big = builder.build();
  EXPECT_FALSE(parse(big)->integer("big").has_value());
}

TEST(Gguf, ReadsNestedArraysUpToALimit) {
  const auto nest = [](int depth) {
    std::string value;
    for (int i = 0; i < depth; ++i) value += raw<uint32_t>(9) + raw<uint64_t>(1);
    value += raw<uint32_t>(4) + raw<uint64_t>(2) + raw<uint32_t>(1) + raw<uint32_t>(2);
    GgufBuilder builder;
    builder.add("nested", GgufType::kArray, value).add("after", 5u);
    return builder.build();
  };
  for (int depth = 0; depth < 4; ++depth) {
    const std::string bytes = nest(depth);
    const auto file = parse(bytes);
    ASSERT_TRUE(file.has_value()) << depth << file.error().to_string();
    EXPECT_EQ(*file->integer("after"), 5);
  }
  expect_corrupt(nest(4), "nests arrays deeper than 4");
  expect_corrupt(nest(100000), "nests arrays deeper than 4");
}

TEST(Gguf, RefusesOtherVersionsAndByteOrders) {
  GgufBuilder builder = small_file();
  builder.version = 1;
  expect_unsupported(builder.build(), "GGUF version 1, expected 2 or 3");
  builder.version = 4;
  expect_unsupported(builder.build(), "version 4");
  builder.version = 0x03000000;
  expect_unsupported(builder.build(), "big endian");
  expect_corrupt("GGML" + raw<uint32_t>(3) + std::string(16, '\0'), "expected \"GGUF\"");
}

TEST(Gguf, RefusesTypesThatItCannotReadByName) {
  GgufBuilder builder;
  builder.tensors.push_back({"w", {256}, 11, std::string(110, '\0')});
  expect_unsupported(builder.build(), "tensor \"w\" has type 11 (Q3_K), expected F32");
  builder.tensors[0].type = 99;
  expect_unsupported(builder.build(), "type 99");
}

TEST(Gguf, CountsBeyondTheFileAreCorrupt) {
  const uint64_t huge = uint64_t{1} << 60;
  const std::string start = "GGUF" + raw<uint32_t>(3);
  expect_corrupt(start + raw(huge) + raw<uint64_t>(0), "1152921504606846976 tensors");
  expect_corrupt(start + raw<uint64_t>(0) + raw(huge), "1152921504606846976 keys");

  const auto with_value = [&](GgufType type, const std::string& value) {
    GgufBuilder builder;
    builder.add("k", type, value).add("padding", std::string_view(std::string(64, 'x')));
    return builder.build();
  };
  expect_corrupt(with_value(GgufType::kString, raw(huge)), "k needs 1152921504606846976 bytes");
  for (const uint32_t element : {0u, 6u, 8u, 9u, 12u}) {
    for (const uint64_t count : {huge, ~uint64_t{0}, uint64_t{1} << 61}) {
      expect_corrupt(with_value(GgufType::kArray, raw(element) + raw(count)), "\"k\" has ");
    }
  }
  expect_corrupt(with_value(GgufType::kArray, raw<uint32_t>(13) + raw<uint64_t>(0)),
                 "\"k\" has value type 13, expected 0 to 12");
}

TEST(Gguf, DuplicatesAreCorrupt) {
  GgufBuilder builder = small_file();
  builder.add("u32", 8u);
  expect_corrupt(builder.build(), "key \"u32\" appears twice");
  builder = small_file();
  builder.tensors[1].name = "first";
  expect_corrupt(builder.build(), "tensor \"first\" appears twice");
}

TEST(Gguf, ImpossibleShapesAreCorrupt) {
  const auto with_dims = [](std::vector<uint64_t> dims, uint32_t type = 0) {
    GgufBuilder builder;
    builder.tensors.push_back({"w", std::move(dims), type, std::string(64, '\0')});
    return builder.build();
  };
  expect_corrupt(with_dims({}), "0 dimensions, expected 1 to 4");
  expect_corrupt(with_dims({1, 1, 1, 1, 1}), "5 dimensions");
  expect_corrupt(with_dims({4, 0}), "dimension of 0");
  expect_corrupt(with_dims({uint64_t{1} << 63}), "more than 2^63 elements");
  expect_corrupt(with_dims({uint64_t{1} << 40, uint64_t{1} << 40}), "more than 2^63 elements");
  expect_corrupt(with_dims({uint64_t{1} << 62}), "more than 2^63 bytes");
  expect_corrupt(with_dims({17}), "68 bytes at offset 0 of a data section of 64 bytes");
  expect_corrupt(with_dims({33, 2}, 3), "rows of 33 elements, expected a multiple of the q4_1");
  expect_corrupt(with_dims({uint64_t{1} << 60}), "bytes at offset 0 of a data section of 64");
}

TEST(Gguf, EveryTypeThatIsReadHasTheSizeOfItsBlocks) {
  struct Known {
    uint32_t id;
    DType dtype;
    size_t bytes_of_256;
  };
  // Numbers and sizes as in the ggml repository's ggml.h and ggml-common.h.
  constexpr Known kKnown[] = {
      {0, DType::kF32, 1024},  {1, DType::kF16, 512},   {2, DType::kQ4_0, 144},
      {3, DType::kQ4_1, 160},  {6, DType::kQ5_0, 176},  {7, DType::kQ5_1, 192},
      {8, DType::kQ8_0, 272},  {12, DType::kQ4_K, 144}, {13, DType::kQ5_K, 176},
      {14, DType::kQ6_K, 210}, {30, DType::kBF16, 512}};
  for (const Known& known : kKnown) {
    GgufBuilder builder;
    builder.tensors.push_back({"w", {256, 3}, known.id, std::string(3 * known.bytes_of_256, '\1')});
    const std::string bytes = builder.build();
    const auto file = parse(bytes);
    ASSERT_TRUE(file.has_value()) << file.error().to_string();
    EXPECT_EQ(file->tensors()[0].dtype, known.dtype);
    EXPECT_EQ(file->tensors()[0].data.size(), 3 * known.bytes_of_256) << known.id;
  }
}

TEST(Gguf, OffsetsOutsideMisalignedOrOverlappingAreCorrupt) {
  const GgufBuilder builder = small_file();
  const auto with_offset = [&](uint64_t offset) {
    std::string bytes = builder.build();
    // The info of the last tensor ends with its offset, right before the padding and the data.
    const size_t name = bytes.find("second");
    bytes.replace(name + 6 + 4 + 16 + 4, 8, raw(offset));
    return bytes;
  };
  EXPECT_TRUE(parse(with_offset(32)).has_value());
  expect_corrupt(with_offset(33), "offset 33, expected a multiple of the alignment, 32");
  expect_corrupt(with_offset(64), "64 bytes at offset 64 of a data section of 96 bytes");
  expect_corrupt(with_offset(uint64_t{1} << 60), "at offset 1152921504606846976");
  expect_corrupt(with_offset(~uint64_t{31}), "at offset 18446744073709551584");
  expect_corrupt(with_offset(0), "inside tensor");
}

TEST(Gguf, TheAlignmentIsRespectedAndChecked) {
  GgufBuilder builder = small_file();
  builder.alignment = 128;
  builder.add("general.alignment", 128u);
  const std::string bytes = builder.build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.has_value()) << file.error().to_string();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->tensors()[1].data.data()), 64),
            random_floats(16, 2));
  for (const uint32_t wrong : {0u, 1u, 4u, 24u, 33u, 1u << 31}) {
    builder = small_file();
    builder.add("general.alignment", wrong);
    expect_corrupt(builder.build(), "\"general.alignment\" is " + std::to_string(wrong));
  }
}

TEST(Gguf, EveryTruncationIsAnError) {
  GgufBuilder builder = small_file();
  builder.tensors.push_back({"last", {9}, 0, random_floats(9, 3)});  // leaves padding behind it
  const std::string bytes = builder.build();
  const size_t padding = 32 - 36 % 32;
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of the exact size, so that a read beyond the end shows under the sanitizer.
    const std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = Gguf::parse(std::as_bytes(std::span(part)), "test.gguf");
    EXPECT_EQ(file.has_value(), size >= bytes.size() - padding) << size;
  }
}

TEST(Gguf, SurvivesRandomMutations) {
  const std::string original = small_file().build();
  int accepted = 0;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    RandomStream random(seed);
    std::vector<char> bytes(original.begin(), original.end());
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      const size_t at = random.below(bytes.size());
      // Values at the borders of the counts and types are likelier to get far than random ones.
      const char edges[] = {0, 1, 8, 9, 12, 127, -128, -1};
      bytes[at] =
          random.below(2) == 0 ? edges[random.below(8)] : static_cast<char>(random.below(256));
    }
    const auto file = Gguf::parse(std::as_bytes(std::span(bytes)), "test.gguf");
    if (!file) continue;
    ++accepted;
    for (const GgufTensor& tensor : file->tensors()) {
      ASSERT_GE(tensor.data.data(), std::as_bytes(std::span(bytes)).data());
      ASSERT_LE(tensor.data.data() + tensor.data.size(),
                std::as_bytes(std::span(bytes)).data() + bytes.size());
    }
    static_cast<void>(file->strings("texts"));
    static_cast<void>(file->integers("numbers"));
  }
  EXPECT_GT(accepted, 100);   // mutations of values and of data leave the file valid
  EXPECT_LT(accepted, 4500);  // and those of lengths and types do not
}

}  // namespace
}  // namespace triptych
