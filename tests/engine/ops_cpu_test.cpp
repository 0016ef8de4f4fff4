// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/ops_cpu.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"
#include "engine/kv_cache.h"
#include "kernels/cpu/ops.h"
#include "tests/support/random_model.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

Tensor tensor_of(std::vector<float>& values, int64_t columns) {
  return {values.data(), static_cast<int64_t>(values.size()) / columns, columns, columns * 4};
}

std::vector<float> random_floats(uint64_t seed, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random_normal(seed, i));
  }
  return values;
}

/// Everything the elementwise operations leave behind for `rows` rows with `threads` threads.
std::vector<float> elementwise(int threads, int64_t rows) {
  cpu::ThreadPool pool(threads);
  ModelConfig config = tiny_config();
  const auto ops = make_cpu_ops(config, pool);
  const int64_t columns = 64;
  std::vector<float> a = random_floats(1, rows * columns);
  std::vector<float> b = random_floats(2, rows * columns);
  std::vector<float> sum(a.size());
  std::vector<float> gated(a.size());
  ops->add(tensor_of(a, columns), tensor_of(b, columns), tensor_of(sum, columns));
  ops->swiglu(tensor_of(a, columns), tensor_of(b, columns), tensor_of(gated, columns));
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), 5);
  ops->begin_step({.tokens = positions, .positions = positions});
  ops->rope(tensor_of(a, columns));
  a.insert(a.end(), sum.begin(), sum.end());
  a.insert(a.end(), gated.begin(), gated.end());
  return a;
}

TEST(CpuOps, TheNumberOfThreadsDoesNotShow) {
  for (const int64_t rows : {1, 3, 257, 1000}) {
    const std::vector<float> one = elementwise(1, rows);
    EXPECT_EQ(elementwise(2, rows), one);
    EXPECT_EQ(elementwise(3, rows), one);
  }
}

TEST(CpuOps, AppendedRowsLandAtTheirPositions) {
  cpu::ThreadPool pool(2);
  const ModelConfig config = tiny_config();
  const auto ops = make_cpu_ops(config, pool);
  const int64_t columns = config.num_kv_heads * config.head_dim;
  // Enough rows for the parallel path in the first sequence, and a second one behind it.
  const KvShape shape{.num_layers = 2, .kv_columns = columns, .max_batch = 2, .max_sequence = 400};
  PagedKvCache cache(*ops, shape, 7, 2 * 58);
  cache.extend(0, 3);
  cache.extend(0, 300);
  cache.extend(1, 2);
  const std::vector<StepSequence> sequences = {{0, 3, 300}, {1, 0, 2}};
  std::vector<float> k = random_floats(1, 302 * columns);
  std::vector<float> v = random_floats(2, 302 * columns);
  ops->begin_step({.sequences = sequences, .cache = &cache});
  ops->kv_append(1, tensor_of(k, columns), tensor_of(v, columns));
  for (int64_t row = 0; row < 302; ++row) {
    const int64_t slot = row < 300 ? 0 : 1;
    const int64_t position = row < 300 ? row + 3 : row - 300;
    const KvPages pages = cache.pages(slot, 1);
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t at = position % 7 * columns + c;
      ASSERT_EQ(pages.k[position / 7][at].bits, half_from_float(k[row * columns + c]).bits);
      ASSERT_EQ(pages.v[position / 7][at].bits, half_from_float(v[row * columns + c]).bits);
    }
  }
}

TEST(CpuOps, AWaitIsARecordOfItsOwnAfterTheOperation) {
  cpu::ThreadPool pool(2);
  const auto ops = make_cpu_ops(tiny_config(), pool);
  RecordSink sink;
  ops->set_sink(&sink);
  const int64_t columns = 4096;
  std::vector<float> a = random_floats(1, 64 * columns);
  std::vector<float> y(a.size());
  ops->add(tensor_of(a, columns), tensor_of(a, columns), tensor_of(y, columns));
  ASSERT_EQ(sink.records().size(), 2u);
  EXPECT_EQ(sink.records()[0].name, "add");
  EXPECT_EQ(sink.records()[0].bytes, 3 * 64 * columns * 4);
  EXPECT_EQ(sink.records()[1].name, "thread_pool_wait");
  EXPECT_EQ(sink.records()[1].kind, ActivityKind::kSync);
  EXPECT_EQ(sink.records()[1].start_ns, sink.records()[0].end_ns);

  std::vector<float> small = random_floats(2, 64);
  ops->add(tensor_of(small, 64), tensor_of(small, 64), tensor_of(y, 64).slice(0, 1));
  ASSERT_EQ(sink.records().size(), 3u) << "a wait was reported twice";
  EXPECT_EQ(sink.records()[2].name, "add");
  ops->set_sink(nullptr);
  ops->add(tensor_of(small, 64), tensor_of(small, 64), tensor_of(y, 64).slice(0, 1));
  EXPECT_EQ(sink.records().size(), 3u);
}

TEST(CpuOps, MemoryIsAlignedAndReported) {
  cpu::ThreadPool pool(1);
  const auto ops = make_cpu_ops(tiny_config(), pool);
  RecordSink sink;
  ops->set_sink(&sink);
  std::byte* memory = ops->allocate(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  ops->release(memory, 100);
  ASSERT_EQ(sink.records().size(), 2u);
  EXPECT_EQ(sink.records()[0].name, "alloc");
  EXPECT_EQ(sink.records()[0].kind, ActivityKind::kRuntime);
  EXPECT_EQ(sink.records()[1].name, "free");
}

}  // namespace
}  // namespace triptych
