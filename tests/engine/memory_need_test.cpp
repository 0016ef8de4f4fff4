// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_need.h"

#include <gtest/gtest.h>

#include "engine/weight_shapes.h"

namespace triptych {
namespace {

TEST(MemoryNeed, AddsUpAndIsComparedWithTheMachine) {
  const MemoryNeed need{.weight_bytes = 1 << 20, .kv_bytes = 2 << 20, .activation_bytes = 3 << 20};
  EXPECT_EQ(need.total(), 6 << 20);
  EXPECT_TRUE(check_memory(need, need.total()).has_value());
  const Status refused = check_memory(need, 5 << 20);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.error().message,
            "weights 1.00 MiB + KV cache 2.00 MiB + activations 3.00 MiB exceed the limit of "
            "5.00 MiB");
  EXPECT_GT(machine_memory_bytes(), 1 << 20);
}

TEST(MemoryNeed, GrowsWithBatchAndSequence) {
  const auto checkpoint = open_synthetic({.synthetic = "llama-tiny"});
  ASSERT_TRUE(checkpoint.has_value());
  const auto shapes = weight_shapes(*checkpoint, WeightScheme::kF16);
  ASSERT_TRUE(shapes.has_value());
  const std::vector shards = {*shapes};
  const auto token = static_cast<double>((*checkpoint)->config().kv_bytes_per_token(2));
  EngineOptions options;
  options.max_sequence = 9;
  const MemoryNeed one = memory_need(shards, options);
  options.max_batch = 4;
  options.max_sequence = 19;
  const MemoryNeed four = memory_need(shards, options);
  EXPECT_EQ(one.weight_bytes, static_cast<double>((*shapes)->bytes()));
  EXPECT_EQ(one.kv_bytes, 10 * token);  // one token more than the sequence: it grows by copying
  EXPECT_EQ(four.kv_bytes, 4 * 20 * token);
  EXPECT_GT(four.activation_bytes, one.activation_bytes);
}

}  // namespace
}  // namespace triptych
