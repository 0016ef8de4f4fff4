// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace triptych {
namespace {

Result<int> half_of(int value) {
  if (value % 2 != 0) return fail(ErrorCode::kInvalidArgument, "odd", "input");
  return value / 2;
}

Result<int> quarter_of(int value) {
  TRIPTYCH_TRY(const int half, half_of(value));
  TRIPTYCH_TRY(const int quarter, half_of(half));
  return quarter;
}

Status check_even(int value) {
  TRIPTYCH_RETURN_IF_ERROR(half_of(value));
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(half_of(4).value(), 2);
  const Result<int> failed = half_of(3);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().to_string(), "input: odd");
  EXPECT_EQ((Error{ErrorCode::kIo, "message", ""}.to_string()), "message");
}

TEST(Result, PropagatesTheFirstError) {
  EXPECT_EQ(quarter_of(8).value(), 2);
  EXPECT_FALSE(quarter_of(6).has_value());
  EXPECT_TRUE(check_even(2).has_value());
  EXPECT_EQ(check_even(1).error().message, "odd");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> owner(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = std::move(owner).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, ValueOfAnErrorIsABug) {
  EXPECT_DEATH(static_cast<void>(half_of(1).value()), "value\\(\\) called on an error: input: odd");
}

}  // namespace
}  // namespace triptych
