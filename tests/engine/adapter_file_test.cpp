// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/adapter_file.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/mapped_file.h"

namespace triptych {
namespace {

TEST(AdapterFile, IsTheTextOfTheSource) {
  for (const std::string& name : adapter_names()) {
    const auto source =
        MappedFile::open(std::string(TRIPTYCH_SOURCE_DIR) + "/engine/adapters/" + name + ".py");
    ASSERT_TRUE(source) << source.error().to_string();
    EXPECT_EQ(adapter_text(name), source->text());
    std::filesystem::path path;
    {
      const auto file = AdapterFile::write(name);
      ASSERT_TRUE(file) << file.error().to_string();
      path = (*file)->path();
      EXPECT_EQ(MappedFile::open(path).value().text(), source->text());
    }
    EXPECT_FALSE(std::filesystem::exists(path.parent_path()));
  }
  EXPECT_EQ(adapter_text("nothing"), std::nullopt);
}

TEST(AdapterFile, ThePythonIsTheUsers) {
  const char* old = std::getenv("TRIPTYCH_PYTHON");
  const std::string kept = old == nullptr ? "" : old;
  ::setenv("TRIPTYCH_PYTHON", "my-python", 1);
  EXPECT_EQ(adapter_python(), "my-python");
  ::unsetenv("TRIPTYCH_PYTHON");
  EXPECT_EQ(adapter_python(), "python3");
  if (!kept.empty()) ::setenv("TRIPTYCH_PYTHON", kept.c_str(), 1);
}

}  // namespace
}  // namespace triptych
