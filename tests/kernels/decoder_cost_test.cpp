// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/decoder_cost.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

void expect_cost(const KernelCost& cost, int64_t read, int64_t written, int64_t flops) {
  EXPECT_EQ(cost.bytes_read, read);
  EXPECT_EQ(cost.bytes_written, written);
  EXPECT_EQ(cost.flops, flops);
}

// 3 rows; 16 columns, or 2 heads of 8.
TEST(DecoderCost, CountsEveryOperandOnce) {
  expect_cost(row_copy_cost(3, 16), 96, 96, 0);
  expect_cost(add_cost(48), 192, 96, 48);
  expect_cost(add_bias_cost(3, 16), 96 + 32, 96, 48);
  expect_cost(swiglu_cost(3, 16), 192, 96, 240);
  expect_cost(head_norm_cost(3, 2, 8), 96 + 16, 96, 192);
  expect_cost(rope_cost(3, 2, 8), 96, 96, 144);
  expect_cost(kv_append_cost(3, 2, 8), 192, 192, 0);
  expect_cost(kv_concat_cost(3, 2, 8), 96, 96, 0);
}

TEST(DecoderCost, FusedIsLessThanTheSum) {
  // 2 query heads and 1 of keys and of values: 4 of 8.
  expect_cost(rope_kv_append_cost(3, 2, 1, 8, false, false), 192, 192, 3 * 72);
  expect_cost(rope_kv_append_cost(3, 2, 1, 8, true, true), 192 + 64 + 32, 192,
              3 * 72 + 96 + 4 * 72);
  const int64_t apart = rope_cost(3, 3, 8).bytes() + kv_append_cost(3, 1, 8).bytes();
  EXPECT_LT(rope_kv_append_cost(3, 2, 1, 8, false, false).bytes(), apart);
}

}  // namespace
}  // namespace triptych
