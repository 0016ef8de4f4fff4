// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/file_checkpoint.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

MappedFile map(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  EXPECT_TRUE(file.has_value());
  return std::move(*file);
}

std::string hash_of(std::initializer_list<std::filesystem::path> paths) {
  std::vector<MappedFile> files;
  for (const auto& path : paths) files.push_back(map(path));
  return FileCheckpoint({}, "test:x", std::move(files), nullptr).hash();
}

TEST(FileCheckpoint, HashDependsOnContentAndOrderOnly) {
  const TempDir dir;
  const auto a = dir.write("a", "one");
  const auto b = dir.write("b", "two");
  const auto copy = dir.write("copy", "one");
  EXPECT_EQ(hash_of({a}), content_hash(std::string_view("one")));
  EXPECT_EQ(hash_of({a, b}), hash_of({copy, b}));
  EXPECT_NE(hash_of({a, b}), hash_of({b, a}));
}

TEST(FileCheckpoint, ChecksShapesAndNorms) {
  FileCheckpoint checkpoint({}, "test:x", {}, nullptr);
  const int64_t matrix[] = {2, 3};
  const int64_t vector[] = {3};
  const StoredTensor stored{"w", "file", matrix, DType::kF32, nullptr};
  EXPECT_TRUE(checkpoint.add({"q", 2, 3}, stored).has_value());
  EXPECT_EQ(checkpoint.tensor("q")->rows, 2);
  const Status wrong = checkpoint.add({"k", 3, 2}, stored);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().to_string(),
            "file: tensor \"w\" has shape [2, 3], expected [3, 2] from the model's configuration");
  EXPECT_EQ(checkpoint.add({"n", 1, 3, true}, stored).error().code, ErrorCode::kCorrupt);
  StoredTensor norm{"n", "file", vector, DType::kF16, nullptr};
  EXPECT_TRUE(checkpoint.add({"n", 1, 3, true}, norm).has_value());
  norm.dtype = DType::kQ8_0;
  EXPECT_EQ(checkpoint.add({"n", 1, 3, true}, norm).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(checkpoint.tensor("none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace triptych
