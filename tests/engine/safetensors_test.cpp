// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/safetensors.h"

#include <gtest/gtest.h>

#include "tests/support/safetensors_builder.h"

namespace triptych {
namespace {

Result<std::vector<SafetensorsTensor>> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "x.safetensors");
}

void expect_error(const std::string& bytes, ErrorCode code, std::string_view part) {
  const auto tensors = parse(bytes);
  ASSERT_FALSE(tensors.has_value()) << part;
  EXPECT_EQ(tensors.error().code, code) << tensors.error().message;
  EXPECT_EQ(tensors.error().where, "x.safetensors");
  EXPECT_NE(tensors.error().message.find(part), std::string::npos) << tensors.error().message;
}

void expect_corrupt(const std::string& bytes, std::string_view part) {
  expect_error(bytes, ErrorCode::kCorrupt, part);
}

SafetensorsBuilder small_file() {
  SafetensorsBuilder builder;
  builder.header["__metadata__"] = {{"format", "pt"}};
  builder.add("z", "F32", {2, 3}, random_floats(6, 1));
  builder.add("a", "F16", {4}, "abcdefgh");
  builder.add("empty", "BF16", {0, 5}, "");
  builder.add("scalar", "I64", {}, "12345678");
  return builder;
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string bytes = small_file().build();
  const auto tensors = parse(bytes);
  ASSERT_TRUE(tensors.has_value()) << tensors.error().to_string();
  ASSERT_EQ(tensors->size(), 4u);
  const SafetensorsTensor& first = (*tensors)[0];
  EXPECT_EQ(first.name, "z");
  EXPECT_EQ(first.dtype, DType::kF32);
  EXPECT_EQ(first.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.data.data()), first.data.size()),
            random_floats(6, 1));
  EXPECT_EQ((*tensors)[1].dtype, DType::kF16);
  EXPECT_EQ((*tensors)[2].name, "empty");
  EXPECT_EQ((*tensors)[3].dtype, std::nullopt);
  EXPECT_EQ((*tensors)[3].type, "I64");
}

TEST(Safetensors, ALyingHeaderLengthIsCorrupt) {
  std::string bytes = small_file().build();
  for (const uint64_t length : {uint64_t{bytes.size() - 7}, uint64_t{1} << 60, ~uint64_t{0}}) {
    bytes.replace(0, 8, raw(length));
    expect_corrupt(bytes, "the header has " + std::to_string(length) + " bytes");
  }
  bytes.replace(0, 8, raw<uint64_t>(5));
  expect_corrupt(bytes, "parse error");
  expect_corrupt("1234567", "the file has 7 bytes");
}

TEST(Safetensors, WrongOffsetsAreCorrupt) {
  const auto with_offsets = [](const char* name, const nlohmann::json& offsets) {
    SafetensorsBuilder builder = small_file();
    builder.header[name]["data_offsets"] = offsets;
    return builder.build();
  };
  expect_corrupt(with_offsets("z", {0, 23}),
                 "tensor \"z\" has 23 bytes of data, its type and "
                 "shape need 24");
  expect_corrupt(with_offsets("a", {16, 24}), "starts at 16, expected 24");  // overlap
  expect_corrupt(with_offsets("scalar", {33, 41}), "ends at 41 of a data section of 40 bytes");
  expect_corrupt(with_offsets("a", {8, 0}), "begin <= end");
  expect_corrupt(with_offsets("a", {0}), "[begin, end]");
  expect_corrupt(with_offsets("a", {-8, 0}), "-8 in \"data_offsets\"");
  expect_corrupt(with_offsets("a", "x"), "\"data_offsets\" is of type string");
  expect_corrupt(with_offsets("a", nullptr), "has no \"data_offsets\"");
  expect_corrupt(with_offsets("a", {1e300, 8}), "data_offsets");
  SafetensorsBuilder hole = small_file();
  hole.header.erase("a");
  expect_corrupt(hole.build(), "tensor \"empty\" starts at 32, expected 24");
  SafetensorsBuilder rest = small_file();
  rest.header.erase("scalar");
  expect_corrupt(rest.build(), "the tensors end at 32 of a data section of 40 bytes");
}

TEST(Safetensors, WrongShapesAndTypesAreNamed) {
  const auto with = [](const char* key, const nlohmann::json& value) {
    SafetensorsBuilder builder = small_file();
    builder.header["z"][key] = value;
    return builder.build();
  };
  expect_corrupt(with("shape", {3, 3}), "has 24 bytes of data, its type and shape need 36");
  expect_corrupt(with("shape", {int64_t{1} << 40, int64_t{1} << 40}), "more than 2^63 bytes");
  expect_corrupt(with("shape", {-2, -3}), "-2 in \"shape\"");
  expect_corrupt(with("dtype", "F16"), "its type and shape need 12");
  expect_corrupt(with("dtype", 3), "\"dtype\" is of type number");
  expect_error(with("dtype", "F4"), ErrorCode::kUnsupported, "tensor \"z\" has type \"F4\"");
}

TEST(Safetensors, DuplicateNamesAreCorrupt) {
  SafetensorsBuilder builder;
  builder.add("a", "F32", {1}, "1234");
  const std::string entry = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_TRUE(parse(builder.with_header("{" + entry + "}")).has_value());
  expect_corrupt(builder.with_header("{" + entry + "," + entry + "}"), "\"a\" appears twice");
  expect_corrupt(builder.with_header("[1]"), "expected object");
}

TEST(Safetensors, EveryTruncationIsAnErrorAndMutationsDoNotCrash) {
  const std::string bytes = small_file().build();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_safetensors(std::as_bytes(std::span(part)), "x").has_value()) << size;
  }
  int accepted = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    RandomStream random(seed);
    std::vector<char> mutated(bytes.begin(), bytes.end());
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      mutated[random.below(mutated.size())] = static_cast<char>(random.below(256));
    }
    if (parse_safetensors(std::as_bytes(std::span(mutated)), "x").has_value()) ++accepted;
  }
  EXPECT_GT(accepted, 50);  // changes to names and data
  EXPECT_LT(accepted, 3500);
}

}  // namespace
}  // namespace triptych
