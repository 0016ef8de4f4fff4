// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Runs a test body once per instruction set that was compiled and that this processor has.
#pragma once

#include <gtest/gtest.h>

// First: says which targets the kernels were compiled for.
#include "kernels/cpu/simd.h"

#include <hwy/highway.h>

namespace triptych {

/// Calls body() with each usable target chosen in turn, then restores the choice.
template <class F>
void for_each_simd_target(const F& body) {
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace triptych
