// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Where tests find the real model, and the skip for machines without it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace triptych {

inline constexpr const char* kModelFileName = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The file named by the environment variable TRIPTYCH_MODEL, else models/<kModelFileName> in the
/// source folder. The path need not exist.
[[nodiscard]] inline std::filesystem::path model_path() {
  const char* given = std::getenv("TRIPTYCH_MODEL");
  if (given != nullptr && *given != '\0') return given;
  return std::filesystem::path(TRIPTYCH_SOURCE_DIR) / "models" / kModelFileName;
}

}  // namespace triptych

/// Skips the running test when the real model is not there. A path that was set by hand must exist,
/// so that a typing error does not turn into a skip.
#define TRIPTYCH_SKIP_WITHOUT_MODEL()                                                            \
  do {                                                                                           \
    if (!std::filesystem::exists(::triptych::model_path())) {                                    \
      ASSERT_EQ(std::getenv("TRIPTYCH_MODEL"), nullptr)                                          \
          << "TRIPTYCH_MODEL names a file that does not exist: " << ::triptych::model_path();    \
      GTEST_SKIP() << "no model at " << ::triptych::model_path() << "; set TRIPTYCH_MODEL to a " \
                   << ::triptych::kModelFileName;                                                \
    }                                                                                            \
  } while (false)
