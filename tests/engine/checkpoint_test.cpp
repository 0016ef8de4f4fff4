// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint.h"

#include <gtest/gtest.h>

#include "tests/support/gguf_builder.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

ErrorCode code_of(const ModelRef& ref) {
  const auto checkpoint = open_checkpoint(ref);
  if (!checkpoint) return checkpoint.error().code;
  ADD_FAILURE() << "expected an error";
  return {};
}

TEST(OpenCheckpoint, ChoosesTheReaderByWhatThePathIs) {
  const TempDir dir;
  const auto gguf = open_checkpoint({.path = dir.write("m.gguf", tiny_llama_gguf().build())});
  ASSERT_TRUE(gguf.has_value()) << gguf.error().to_string();
  EXPECT_EQ((*gguf)->origin(), "gguf:m.gguf");
  const auto synthetic = open_checkpoint({.synthetic = "llama-tiny"});
  ASSERT_TRUE(synthetic.has_value());
  EXPECT_EQ((*synthetic)->origin(), "synthetic:llama-tiny");
  const auto directory = open_checkpoint({.path = dir.path()});
  ASSERT_FALSE(directory.has_value());
  EXPECT_NE(directory.error().where.find("config.json"), std::string::npos);
}

TEST(OpenCheckpoint, WhatCannotBeOpenedIsNotCalledMissing) {
  const TempDir folder;
  std::filesystem::create_symlink("loop.gguf", folder / "loop.gguf");
  const auto loop = open_checkpoint({.path = folder / "loop.gguf"});
  ASSERT_FALSE(loop);
  EXPECT_EQ(loop.error().code, ErrorCode::kIo);
  EXPECT_EQ(open_checkpoint({.path = folder / "none.gguf"}).error().code, ErrorCode::kNotFound);
}

TEST(OpenCheckpoint, RefusesReferencesThatNameNothing) {
  const TempDir dir;
  EXPECT_EQ(code_of({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.path = "x.gguf", .synthetic = "llama-tiny"}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.path = dir.path() / "none.gguf"}), ErrorCode::kNotFound);
  EXPECT_EQ(code_of({.path = dir.write("model.bin", "x")}), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of({.synthetic = "none"}), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace triptych
