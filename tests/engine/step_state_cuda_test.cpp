// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/step_state_cuda.h"

#include <gmock/gmock.h>

#include <vector>

#include "tests/support/cuda_ops.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;

/// A step and the memory that it refers to.
struct StepData {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<StepSequence> sequences;
  std::vector<SampledRow> sampled;

  /// Rows of one sequence; its last is sampled.
  void add(int64_t slot, int64_t first_position, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      positions.push_back(static_cast<int32_t>(first_position + i));
      tokens.push_back(static_cast<int32_t>(10 + tokens.size()));
    }
    sequences.push_back({slot, first_position, count});
    sampled.push_back({std::ssize(tokens) - 1,
                       static_cast<int32_t>(slot),
                       {static_cast<int32_t>(100 + slot), positions.back()}});
  }
  Step step(int64_t padded_rows = 0) const {
    return {.tokens = tokens,
            .positions = positions,
            .sequences = sequences,
            .sampled = sampled,
            .padded_rows = padded_rows};
  }
};

class StepStateCuda : public CudaOpsTest {
 protected:
  std::vector<int32_t> on_device(const int32_t* array, int64_t count) const {
    return from_device(array, count);
  }
  Stream stream_;
  void SetUp() override {
    CudaOpsTest::SetUp();
    if (ops_ != nullptr) stream_ = make_stream();
  }
};

TEST_F(StepStateCuda, PrefillBesideDecode) {
  CudaPagedCache cache(*ops_, kShape, 16, 40);
  StepState state(options("fast", DeviceKind::kCuda, kMaxBatch), 3);
  state.set_cache(&cache, nullptr);
  EXPECT_TRUE(state.paged());
  StepData data;
  data.add(2, 0, 5);
  data.add(0, 7, 1);
  data.add(1, 19, 1);
  cache.extend(2, 5);
  cache.extend(0, 8);
  cache.extend(1, 20);
  state.begin(data.step(), 0, stream_.get());
  EXPECT_EQ(state.rows(), 7);
  EXPECT_FALSE(state.padded());
  EXPECT_EQ(state.sequences(), 3);
  EXPECT_EQ(state.sampled(), 3);
  EXPECT_EQ(state.real_sampled(), 3);
  EXPECT_EQ(state.first_decode(), 1);
  EXPECT_EQ(state.first_decode_row(), 5);
  EXPECT_EQ(state.max_kv_length(), 20);
  EXPECT_EQ(state.total_tokens(), 5 + 8 + 20);
  EXPECT_EQ(state.keys(0), 5 + 8 + 20);
  EXPECT_EQ(state.keys(4), 5 + 4 + 4);
  EXPECT_EQ(state.attended(0), 15 + 8 + 20);
  EXPECT_EQ(state.attended(4), (1 + 2 + 3 + 4 + 4) + 4 + 4);
  const StepBuffers::View& device = state.device();
  EXPECT_THAT(on_device(device.tokens, 7), ElementsAre(10, 11, 12, 13, 14, 15, 16));
  EXPECT_THAT(on_device(device.positions, 7), ElementsAre(0, 1, 2, 3, 4, 7, 19));
  EXPECT_THAT(on_device(device.row_sequences, 7), ElementsAre(0, 0, 0, 0, 0, 1, 2));
  EXPECT_THAT(on_device(device.row_starts, 4), ElementsAre(0, 5, 6, 7));
  EXPECT_THAT(on_device(device.kv_lengths, 3), ElementsAre(5, 8, 20));
  EXPECT_THAT(on_device(device.sampled_rows, 3), ElementsAre(4, 5, 6));
  EXPECT_THAT(on_device(device.sampled_slots, 3), ElementsAre(2, 0, 1));
  const auto keys = from_device(device.sample_keys, 3);
  EXPECT_EQ(keys[2].request, 101);
  EXPECT_EQ(keys[2].position, 19);
  const int64_t stride = cache.table().pages_per_slot();
  const std::vector<int32_t> table = on_device(device.page_table, 3 * stride);
  for (int64_t s = 0; s < 3; ++s) {
    const auto ids = cache.table().ids(data.sequences[static_cast<size_t>(s)].slot);
    for (int64_t page = 0; page < std::ssize(ids); ++page) {
      EXPECT_EQ(table[static_cast<size_t>(s * stride + page)], ids[static_cast<size_t>(page)]);
    }
  }
}

// Only what stands behind the last sequence of several rows is decode; a prompt of one token before
// it is read with the prompts.
TEST_F(StepStateCuda, DecodeBeginsBehindTheLastSequenceOfSeveralRows) {
  CudaPagedCache cache(*ops_, kShape, 16, 40);
  StepState state(options("fast", DeviceKind::kCuda, kMaxBatch), 3);
  state.set_cache(&cache, nullptr);
  StepData data;
  data.add(0, 0, 1);
  data.add(1, 0, 3);
  data.add(2, 0, 1);
  for (int64_t slot = 0; slot < 3; ++slot) cache.extend(slot, slot == 1 ? 3 : 1);
  state.begin(data.step(), 0, stream_.get());
  EXPECT_EQ(state.first_decode(), 2);
  EXPECT_EQ(state.first_decode_row(), 4);

  StepData prompts;
  prompts.add(3, 0, 2);
  cache.extend(3, 2);
  state.begin(prompts.step(), 0, stream_.get());
  EXPECT_EQ(state.first_decode(), 1) << "nothing decodes";
  EXPECT_EQ(state.first_decode_row(), 2);
}

TEST_F(StepStateCuda, PaddingReadsNothingAndSamplesForNobody) {
  CudaPagedCache cache(*ops_, kShape, 16, 40);
  StepState state(options("fast", DeviceKind::kCuda, kMaxBatch), 3);
  state.set_cache(&cache, nullptr);
  StepData data;
  for (const int64_t slot : {4, 1, 6}) {
    data.add(slot, 10 + slot, 1);
    cache.extend(slot, 11 + slot);
  }
  state.begin(data.step(8), 0, stream_.get());
  EXPECT_TRUE(state.padded());
  EXPECT_EQ(state.rows(), 8);
  EXPECT_EQ(state.sequences(), 8);
  EXPECT_EQ(state.sampled(), 8);
  EXPECT_EQ(state.real_sampled(), 3);
  EXPECT_EQ(state.first_decode(), 0);
  EXPECT_EQ(state.first_decode_row(), 0);
  EXPECT_EQ(state.keys(0), 15 + 12 + 17);
  const StepBuffers::View& device = state.device();
  EXPECT_THAT(on_device(device.row_starts, 9), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(on_device(device.kv_lengths, 8), ElementsAre(15, 12, 17, 0, 0, 0, 0, 0));
  EXPECT_THAT(on_device(device.row_sequences, 8), ElementsAre(0, 1, 2, -1, -1, -1, -1, -1));
  EXPECT_THAT(on_device(device.tokens, 8), ElementsAre(10, 11, 12, 0, 0, 0, 0, 0));
  EXPECT_THAT(on_device(device.positions, 8), ElementsAre(14, 11, 16, 0, 0, 0, 0, 0));
  EXPECT_THAT(on_device(device.sampled_slots, 8), ElementsAre(4, 1, 6, -1, -1, -1, -1, -1));
}

class ConcatStateCuda : public StepStateCuda {
 protected:
  void SetUp() override {
    StepStateCuda::SetUp();
    if (ops_ == nullptr) return;
    cache_ = std::make_unique<CudaConcatCache>(*ops_, kShape);
    state_ = std::make_unique<StepState>(options("eager", DeviceKind::kCuda, kMaxBatch), 3);
    state_->set_cache(nullptr, cache_.get());
  }
  void TearDown() override {
    if (state_ != nullptr) state_->forget();
  }
  /// Reads `count` tokens more of each slot, and allocates what the step's kernels would fill.
  void run(const std::vector<int64_t>& slots, int64_t count) {
    StepData data;
    for (const int64_t slot : slots) {
      data.add(slot, cache_->length(slot), count);
      cache_->extend(slot, count);
    }
    state_->begin(data.step(), 0, stream_.get());
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (const int which : {0, 1}) static_cast<void>(state_->group().allocate(layer, which));
    }
  }

  std::unique_ptr<CudaConcatCache> cache_;
  std::unique_ptr<StepState> state_;
};

TEST_F(ConcatStateCuda, AGroupIsOutgrownWhenItsLastSequenceHasMoved) {
  run({0, 1}, 4);
  EXPECT_FALSE(state_->paged());
  CudaConcatCache::Group* const first = &state_->group();
  EXPECT_EQ(first->tokens, 8);
  EXPECT_TRUE(state_->outgrown().empty());
  run({0}, 1);
  CudaConcatCache::Group* const second = &state_->group();
  EXPECT_EQ(second->tokens, 5);
  EXPECT_TRUE(state_->outgrown().empty()) << "sequence 1 is still there";
  run({1}, 1);
  CudaConcatCache::Group* const third = &state_->group();
  ASSERT_EQ(state_->outgrown().size(), 1u);
  EXPECT_EQ(state_->outgrown()[0].get(), first);
  run({1, 0}, 1);
  EXPECT_EQ(state_->group().tokens, 12);
  ASSERT_EQ(state_->outgrown().size(), 2u);
  EXPECT_EQ(state_->outgrown()[0].get(), third);
  EXPECT_EQ(state_->outgrown()[1].get(), second);
}

TEST_F(ConcatStateCuda, AStepKnowsWhereItsSequencesWereAndWillBe) {
  run({0, 1}, 4);
  const CudaConcatCache::Group& old = state_->group();
  const std::byte* const keys = old.data(1, 0);
  const std::byte* const values = old.data(2, 1);
  EXPECT_EQ(cache_->place(1).start, 4);
  run({1, 5}, 2);
  const StepBuffers::View& device = state_->device();
  EXPECT_THAT(on_device(device.kv_starts, 2), ElementsAre(0, 6));
  EXPECT_THAT(on_device(device.old_lengths, 2), ElementsAre(4, 0));
  EXPECT_THAT(on_device(device.kv_lengths, 2), ElementsAre(6, 2));
  const auto parts = from_device(device.old_parts, 6 * kMaxBatch);
  const int64_t moved = 4 * cache_->token_bytes();  // sequence 1 lay behind sequence 0
  EXPECT_EQ(parts[static_cast<size_t>(2 * kMaxBatch)], keys + moved);
  EXPECT_EQ(parts[static_cast<size_t>(5 * kMaxBatch)], values + moved);
  EXPECT_EQ(parts[static_cast<size_t>(2 * kMaxBatch + 1)], nullptr) << "nothing cached yet";
}

TEST_F(ConcatStateCuda, MemoryIsBackWhenTheStepIsForgottenAndTheSlotsAreCleared) {
  run({0, 1, 2}, 3);
  run({0, 2}, 1);
  for (int64_t slot = 0; slot < 3; ++slot) cache_->clear(slot);
  state_->forget();
  cache_->reset_peak();
  EXPECT_EQ(cache_->peak_bytes(), 0);
}

}  // namespace
}  // namespace triptych
