// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/mapped_file.h"

namespace triptych {
namespace {

// XXH3-128 of the empty input with seed 0, from the algorithm's specification.
TEST(Hash, KnownValueOfTheEmptyInput) {
  EXPECT_EQ(content_hash(std::string_view{}), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, OneBitChangesTheHash) {
  EXPECT_NE(content_hash("stack: a"), content_hash("stack: b"));
  EXPECT_EQ(content_hash("stack: a"), content_hash("stack: a"));
  EXPECT_EQ(content_hash("x").size(), 32u);
}

TEST(Hash, FileHashIsTheHashOfItsBytes) {
  const auto path = std::filesystem::path(testing::TempDir()) / "hash_test.bin";
  const std::string content(100000, '\xAB');
  std::ofstream(path, std::ios::binary) << content;
  EXPECT_EQ(file_hash(path).value(), content_hash(content));
  EXPECT_EQ(file_hash(path.string() + ".missing").error().code, ErrorCode::kNotFound);
  std::filesystem::remove(path);
}

TEST(MappedFile, ShowsTheBytesAndSurvivesAMove) {
  const auto path = std::filesystem::path(testing::TempDir()) / "mapped_file_test.txt";
  std::ofstream(path) << "hello";
  MappedFile first = MappedFile::open(path).value();
  MappedFile second = std::move(first);
  EXPECT_EQ(second.text(), "hello");
  EXPECT_EQ(second.path(), path);
  second = MappedFile();
  EXPECT_TRUE(second.bytes().empty());
  std::filesystem::remove(path);
}

TEST(MappedFile, EmptyFileAndBadPaths) {
  const auto path = std::filesystem::path(testing::TempDir()) / "mapped_file_empty";
  std::ofstream(path).close();
  EXPECT_TRUE(MappedFile::open(path).value().bytes().empty());
  std::filesystem::remove(path);
  EXPECT_EQ(MappedFile::open(path).error().code, ErrorCode::kNotFound);
  const Result<MappedFile> directory = MappedFile::open(testing::TempDir());
  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(directory.error().message, "is a folder, expected a file");
  const Result<MappedFile> device = MappedFile::open("/dev/null");
  EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(device.error().message, "is no regular file");
}

}  // namespace
}  // namespace triptych
