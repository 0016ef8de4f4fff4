// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// GpuTest: base of tests that need a device. Without one they skip, unless TRIPTYCH_REQUIRE_GPU is
// 1: on a GPU machine a skip would hide that nothing ran.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "kernels/device_info.h"

namespace triptych {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto devices = query_devices();
    if (devices.has_value()) return;
    const char* required = std::getenv("TRIPTYCH_REQUIRE_GPU");
    if (required != nullptr && std::string_view(required) == "1") {
      FAIL() << devices.error().message;
    }
    GTEST_SKIP() << devices.error().message;
  }
};

}  // namespace triptych
