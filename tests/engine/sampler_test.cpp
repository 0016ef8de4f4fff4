// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/ops_cpu.h"
#include "tests/support/random_model.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

class SamplerTest : public ::testing::Test {
 protected:
  std::vector<int32_t> sample(SamplingPlace place, std::vector<float>& logits, int64_t rows,
                              ActivitySink* sink = nullptr) {
    Sampler sampler(*ops_, place, {}, pool_);
    std::vector<SampledRow> sampled(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) sampled[static_cast<size_t>(r)].row = r;
    const int64_t columns = static_cast<int64_t>(logits.size()) / rows;
    std::vector<int32_t> tokens(static_cast<size_t>(rows), -1);
    ops_->set_sink(sink);
    ops_->begin_step({.sampled = sampled});
    sampler.sample({logits.data(), rows, columns, columns * 4}, sampled, sink);
    sampler.fetch(tokens);
    ops_->set_sink(nullptr);
    return tokens;
  }
  cpu::ThreadPool pool_{2};
  std::unique_ptr<Ops> ops_ = make_cpu_ops(tiny_config(), pool_);
};

TEST_F(SamplerTest, BothPlacesChooseTheFirstLargest) {
  RandomStream random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const auto rows = 1 + static_cast<int64_t>(random.below(5));
    const auto columns = 1 + static_cast<int64_t>(random.below(trial % 10 == 0 ? 30000 : 300));
    std::vector<float> logits(static_cast<size_t>(rows * columns));
    // Few distinct values, so that ties are common.
    for (float& value : logits) value = static_cast<float>(random.below(20)) - 25.0f;
    std::vector<int32_t> expected;
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = logits.begin() + r * columns;
      expected.push_back(static_cast<int32_t>(std::max_element(row, row + columns) - row));
    }
    EXPECT_EQ(sample(SamplingPlace::kDevice, logits, rows), expected);
    EXPECT_EQ(sample(SamplingPlace::kHost, logits, rows), expected);
  }
}

TEST_F(SamplerTest, OnlyTheHostMovesLogits) {
  std::vector<float> logits = {1, 3, 2, 9, 8, 7};
  RecordSink device;
  EXPECT_EQ(sample(SamplingPlace::kDevice, logits, 2, &device), (std::vector<int32_t>{1, 0}));
  ASSERT_EQ(device.records().size(), 1u);
  EXPECT_EQ(device.records()[0].name, "argmax");
  RecordSink host;
  EXPECT_EQ(sample(SamplingPlace::kHost, logits, 2, &host), (std::vector<int32_t>{1, 0}));
  ASSERT_EQ(host.records().size(), 2u);
  EXPECT_EQ(host.records()[0].name, "logits_to_host");
  EXPECT_EQ(host.records()[0].kind, ActivityKind::kMemcpy);
  EXPECT_EQ(host.records()[0].bytes, 2 * 6 * 4);
  EXPECT_EQ(host.records()[1].name, "argmax");
  EXPECT_EQ(host.records()[1].bytes, 6 * 4);
  EXPECT_LE(host.records()[0].end_ns, host.records()[1].start_ns);
}

}  // namespace
}  // namespace triptych
