// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What the program triptych_lost_device and the tests that run it agree on.
#pragma once

#include <cstdint>
#include <string_view>

namespace triptych::test {

// KV budgets, tokens: far more than the cells need, so that they change nothing else.
inline constexpr int64_t kLosesInAPass = 4242;
inline constexpr int64_t kLosesWhenCompared = 4243;
/// A warm-up pass and one block are over then.
inline constexpr int64_t kPassThatLoses = 3;
inline constexpr std::string_view kLossOnTheCpu = "the engine of the test lost its device";

}  // namespace triptych::test
