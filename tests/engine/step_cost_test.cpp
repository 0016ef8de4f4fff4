// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include "engine/weight_shapes.h"

namespace triptych {
namespace {

/// llama-tiny, counted by hand: hidden 64, intermediate 192, 2 layers, 4 and 2 heads of 16,
/// vocabulary 512.
TEST(StepCost, IsWhatTheShapesSay) {
  const auto checkpoint = open_checkpoint({.synthetic = "llama-tiny"}).value();
  const auto shapes = weight_shapes(checkpoint, WeightScheme::kF16).value();
  constexpr int64_t kLayer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 192;
  constexpr int64_t kHead = 512 * 64;
  constexpr int64_t kNorms = 5 * 64 * 4;            // f32
  constexpr int64_t kKvToken = 2 * 2 * 2 * 16 * 2;  // layers, k and v, heads, head_dim, f16
  const int64_t batch = 3;
  const int64_t context = 10;
  const KernelCost cost = step_cost(*shapes, {}, batch, context);
  EXPECT_EQ(cost.bytes_written, batch * kKvToken);
  EXPECT_EQ(cost.bytes_read,
            2 * (2 * kLayer + kHead) + kNorms + batch * (64 * 2 + context * kKvToken));
  EXPECT_EQ(cost.flops, batch * (2 * (2 * kLayer + kHead) + 4 * 2 * context * 4 * 16));
}

}  // namespace
}  // namespace triptych
