// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What the operations write into their scratch, against the sizes that engine/ops.h gives for it.
#include "engine/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/ops_cpu.h"
#include "tests/support/random_model.h"

namespace triptych {
namespace {

constexpr float kUntouched = 1234.5f;

/// [rows, columns] with a guard behind it, which no operation may write to.
class Guarded {
 public:
  Guarded(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), values_(rows * columns + 64, kUntouched) {}
  Tensor tensor() { return {values_.data(), rows_, columns_, columns_ * 4}; }
  /// Elements of the matrix that were written.
  int64_t written() const {
    return std::count_if(values_.begin(), values_.begin() + rows_ * columns_,
                         [](float value) { return value != kUntouched; });
  }
  bool guard_holds() const {
    return std::all_of(values_.begin() + rows_ * columns_, values_.end(),
                       [](float value) { return value == kUntouched; });
  }

 private:
  int64_t rows_;
  int64_t columns_;
  std::vector<float> values_;
};

TEST(Ops, ScratchOfTheFusedProductsIsWhatTheyWrite) {
  const ModelConfig config = tiny_config();
  const auto weights = random_model(config, DType::kF32, 1);
  const LayerWeights& layer = weights->layers[0];
  cpu::ThreadPool pool(1);
  const auto ops = make_cpu_ops(config, pool);
  const KvShape shape{.num_layers = config.num_layers,
                      .kv_columns = layer.k.rows,
                      .max_batch = 1,
                      .max_sequence = 8};
  PagedKvCache cache(*ops, shape, 4, 2);
  cache.extend(0, 5);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4};
  const StepSequence sequence{0, 0, 5};
  ops->begin_step(
      {.tokens = tokens, .positions = positions, .sequences = {&sequence, 1}, .cache = &cache});
  Guarded residual(5, config.hidden_size);
  Guarded normed(5, config.hidden_size);
  ops->embed(weights->embed, residual.tensor());
  const NormedInput in{residual.tensor(), layer.attn_norm.data(), normed.tensor()};
  ops->fused_norm(in);

  Guarded q(5, layer.q.rows);
  Guarded qkv(5, qkv_scratch_columns(DeviceKind::kCpu, layer.q.rows, layer.k.rows));
  ops->fused_qkv(0, in, {layer.q, layer.k, layer.v, {}}, qkv.tensor(), q.tensor());
  EXPECT_TRUE(qkv.guard_holds());
  EXPECT_EQ(qkv.written(), 5 * 2 * layer.k.rows) << "keys and values";

  const int64_t columns = layer.gate.rows;
  Guarded y(5, columns);
  Guarded gate_up(5, gate_up_scratch_columns(DeviceKind::kCpu, columns));
  ops->fused_gate_up(in, layer.gate, layer.up, gate_up.tensor(), y.tensor());
  EXPECT_TRUE(gate_up.guard_holds()) << "the scratch has no columns";
  EXPECT_EQ(y.written(), 5 * columns);
}

TEST(Ops, ADeviceWritesProductsSideBySideInHalfTheBytes) {
  EXPECT_EQ(activation_bytes(DeviceKind::kCpu), 4);
  EXPECT_EQ(activation_bytes(DeviceKind::kCuda), 2);
  EXPECT_EQ(qkv_scratch_columns(DeviceKind::kCuda, 64, 32), 64 + 2 * 32);
  EXPECT_EQ(gate_up_scratch_columns(DeviceKind::kCuda, 128), 2 * 128);
}

}  // namespace
}  // namespace triptych
