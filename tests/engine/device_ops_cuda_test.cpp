// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Memory, tracing, and the way of tokens to the host.
#include "engine/cuda/device_ops_cuda.h"

#include <cstring>

#include "tests/support/cuda_ops.h"
#include "tests/support/device_numbers.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

class DeviceOpsCuda : public CudaOpsTest {
 protected:
  /// A step of single tokens in slots 0, 1, ..., all of which are sampled.
  void begin(int64_t rows) {
    tokens_.assign(static_cast<size_t>(rows), 0);
    sequences_.clear();
    sampled_.clear();
    for (int64_t i = 0; i < rows; ++i) {
      sequences_.push_back({i, 0, 1});
      sampled_.push_back({i, static_cast<int32_t>(i), {static_cast<int32_t>(i), 1}});
    }
    ops_->begin_step({.tokens = tokens_,
                      .positions = tokens_,
                      .sequences = sequences_,
                      .sampled = sampled_,
                      .cache = cache_.get()});
  }
  /// Greedy choice from logits whose largest is `chosen` in every row.
  void sample(const std::vector<int64_t>& chosen) {
    const int64_t vocab = base_config().vocab_size;
    std::vector<__half> logits;
    for (const int64_t token : chosen) {
      for (int64_t i = 0; i < vocab; ++i) logits.push_back(__float2half(i == token ? 5.0f : 1.0f));
    }
    logits_.push_back(to_device(logits));
    ops_->sample({logits_.back().data(), std::ssize(chosen), vocab, 2 * vocab}, {});
  }
  void SetUp() override {
    CudaOpsTest::SetUp();
    if (ops_ != nullptr) cache_ = ops_->make_cache(kShape, 16, 40);
  }

  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> tokens_;
  std::vector<StepSequence> sequences_;
  std::vector<SampledRow> sampled_;
  std::vector<DeviceBuffer<__half>> logits_;
};

TEST_F(DeviceOpsCuda, OutOfMemorySaysSoAndNothingIsBroken) {
  size_t free_bytes = 0;
  size_t total = 0;
  TRIPTYCH_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
  try {
    static_cast<void>(ops_->allocate(2 * static_cast<int64_t>(total)));
    FAIL() << "twice the device's memory";
  } catch (const DeviceError& error) {
    EXPECT_TRUE(error.out_of_memory()) << error.what();
  }
  size_t left = 0;
  TRIPTYCH_CUDA_CHECK(cudaMemGetInfo(&left, &total));
  EXPECT_GT(left, free_bytes / 2) << "the attempt keeps nothing";
  std::byte* const memory = ops_->allocate(4096);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  ops_->wait();  // the allocation is in the stream's order
  TRIPTYCH_CUDA_CHECK(cudaMemset(memory, 1, 4096));
  EXPECT_EQ(from_device(memory + 4095, 1)[0], std::byte{1});
  ops_->release(memory, 4096);
  ops_->wait();
}

TEST_F(DeviceOpsCuda, EnginesHaveTheirPoolsInTheSameMemory) {
  const auto first = make(options("eager", DeviceKind::kCuda));
  const auto second = make(options("eager", DeviceKind::kCuda));
  std::byte* const pool = first->allocate_pool(5000);
  EXPECT_EQ(second->allocate_pool(100), pool);
  std::byte* const behind = first->allocate_pool(5000);
  EXPECT_GE(behind - pool, 5000);
  EXPECT_EQ((behind - pool) % 4096, 0);
  TRIPTYCH_CUDA_CHECK(cudaMemset(behind, 1, 5000));
  EXPECT_EQ(from_device(behind + 4999, 1)[0], std::byte{1});
}

TEST_F(DeviceOpsCuda, CopiesAreReportedWhileThereIsASink) {
  const auto from = to_device(std::vector<int32_t>{1, 2, 3, 4});
  const DeviceBuffer<int32_t> to(4);
  const auto copy = [&] {
    ops_->copy(reinterpret_cast<const std::byte*>(from.data()),
               reinterpret_cast<std::byte*>(to.data()), 16, "copied");
    ops_->wait();
  };
  RecordSink sink;
  ops_->set_sink(&sink);
  copy();
  EXPECT_EQ(to_host(to), (std::vector<int32_t>{1, 2, 3, 4}));
  ASSERT_EQ(sink.count("copied"), 1);
  EXPECT_EQ(sink.records()[0].kind, ActivityKind::kMemcpy);
  EXPECT_EQ(sink.records()[0].bytes, 32) << "read and written";
  ops_->set_sink(nullptr);
  copy();
  EXPECT_EQ(sink.count("copied"), 1);
}

TEST_F(DeviceOpsCuda, WeightsAreWhereTheDeviceReadsThem) {
  const LayerWeights& layer = weights_->layers[1];
  const WeightView down = ops_->resident(layer.down);
  EXPECT_EQ(down.rows, layer.down.rows);
  EXPECT_EQ(down.columns, layer.down.columns);
  const std::vector<std::byte> copy = from_device(down.data, down.bytes());
  EXPECT_EQ(std::memcmp(copy.data(), layer.down.data, copy.size()), 0);
  const auto norm = from_device(static_cast<const __half*>(ops_->resident(layer.attn_norm)), 3);
  EXPECT_EQ(__half2float(norm[2]), __half2float(__float2half(layer.attn_norm[2])));
}

TEST_F(DeviceOpsCuda, TokensOfTwoStepsUnderWayComeInTheirOrder) {
  begin(3);
  sample({7, 20, 3});
  begin(2);
  sample({50, 9});
  std::vector<int32_t> first(3);
  ops_->fetch_tokens(first);
  EXPECT_EQ(first, (std::vector<int32_t>{7, 20, 3}));
  begin(1);
  sample({64});
  std::vector<int32_t> second(2);
  ops_->fetch_tokens(second);
  EXPECT_EQ(second, (std::vector<int32_t>{50, 9}));
  std::vector<int32_t> third(1);
  ops_->fetch_tokens(third);
  EXPECT_EQ(third, std::vector<int32_t>{64});
}

TEST_F(DeviceOpsCuda, WaitingDropsTokensThatNobodyFetched) {
  begin(1);
  sample({7});
  begin(1);
  sample({8});
  ops_->wait();
  begin(1);
  sample({9});
  std::vector<int32_t> token(1);
  ops_->fetch_tokens(token);
  EXPECT_EQ(token[0], 9);
}

// A token that the host does not know yet: the one that its slot was given last.
TEST_F(DeviceOpsCuda, AStepMayReadTheTokensOfTheOneBefore) {
  begin(3);
  sample({7, 20, 3});
  const std::vector<int32_t> tokens = {-1 - 2, 11, -1 - 0};
  ops_->begin_step({.tokens = tokens,
                    .positions = tokens_,
                    .sequences = sequences_,
                    .sampled = sampled_,
                    .cache = cache_.get()});
  const WeightView table = ops_->resident(weights_->embed);
  const DeviceBuffer<__half> out(static_cast<size_t>(3 * table.columns));
  ops_->embed(table, {out.data(), 3, table.columns, 2 * table.columns});
  ops_->wait();
  const std::vector<__half> rows = to_host(out);
  for (size_t row = 0; row < 3; ++row) {
    const int64_t token = std::vector<int64_t>{3, 11, 7}[row];
    EXPECT_EQ(std::memcmp(&rows[row * static_cast<size_t>(table.columns)],
                          weights_->embed.row(token), 2 * table.columns),
              0)
        << "row " << row;
  }
}

}  // namespace
}  // namespace triptych
