// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/file_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>

#include "base/mapped_file.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

TEST(FileWriter, WritesAllBytesInOrder) {
  const TempDir dir;
  auto file = FileWriter::create(dir / "a");
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->write("first ").has_value());
  const std::string large(3 << 20, 'x');
  EXPECT_TRUE(file->write(large).has_value());
  EXPECT_TRUE(file->close().has_value());
  EXPECT_EQ(MappedFile::open(dir / "a")->text(), "first " + large);
}

TEST(FileWriter, NeverReplacesAFile) {
  const TempDir dir;
  dir.write("a", "old");
  const auto file = FileWriter::create(dir / "a");
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::kIo);
  EXPECT_EQ(file.error().where, (dir / "a").string());
  EXPECT_EQ(MappedFile::open(dir / "a")->text(), "old");
  EXPECT_EQ(FileWriter::create(dir / "no" / "a").error().code, ErrorCode::kIo);
}

TEST(FileWriter, PartsMayComeInAnyOrder) {
  const TempDir dir;
  auto file = FileWriter::create(dir / "a");
  ASSERT_TRUE(file.has_value());
  ASSERT_TRUE(file->write("head"));
  const auto part = [](std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  };
  ASSERT_TRUE(file->write_at(8, part("tail")));
  ASSERT_TRUE(file->write_at(4, part("body")));
  ASSERT_TRUE(file->close());
  EXPECT_EQ(MappedFile::open(dir / "a")->text(), "headbodytail");
}

TEST(FileWriter, SaysThatTheFileCannotGrow) {
  const TempDir dir;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1000;
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status;
  {
    auto file = FileWriter::create(dir / "a");
    if (file) status = file->write(std::string(2000, 'x'));
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, previous);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_EQ(status.error().where, (dir / "a").string());
}

}  // namespace
}  // namespace triptych
