// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(CheckDeathTest, NamesPlaceConditionAndMessage) {
  EXPECT_DEATH(TRIPTYCH_CHECK(1 + 1 == 3, "arithmetic"),
               "check_test.cpp:[0-9]+: check failed: 1 \\+ 1 == 3: arithmetic");
}

TEST(Check, TrueConditionIsEvaluatedOnceAndPasses) {
  int evaluations = 0;
  TRIPTYCH_CHECK(++evaluations == 1, "evaluated once");
  EXPECT_EQ(evaluations, 1);
}

}  // namespace
}  // namespace triptych
