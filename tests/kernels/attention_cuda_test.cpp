// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/row_map.h"
#include "tests/support/attention_case.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

// The weights of a softmax are rounded to T before they meet the values, and the result once more:
// two roundings, each of at most kUnit of sum(weight * |v|). Scores are sums in f32 of at most
// 256 products whose magnitudes add to about 16, so weights are off by another 256 * 16 * 2^-24,
// half a rounding of f16, at the very worst. Weights below the normal range round to a multiple of
// the smallest number; values are below 8.
template <class T>
double tolerance(double magnitude, int64_t keys) {
  return 2.5 * Rounding<T>::kUnit * magnitude +
         4.0 * static_cast<double>(keys) * Rounding<T>::kSmallest;
}

template <class T>
void expect_attention(AttentionCase<T>& attention, const std::string& what) {
  const AttentionInputs<T>& inputs = attention.inputs();
  const auto result = attention.result();
  const auto& expected = attention.expected();
  for (int64_t s = 0; s < inputs.num_sequences(); ++s) {
    const int64_t begin = inputs.row_starts[s] * inputs.width();
    for (int64_t i = begin; i < inputs.row_starts[s + 1] * inputs.width(); ++i) {
      ASSERT_NEAR(Rounding<T>::to(result[i]), expected[i].value,
                  tolerance<T>(expected[i].magnitude, inputs.sizes.kv_lengths[s]))
          << what << ": sequence " << s << " row " << (i - begin) / inputs.width() << " column "
          << (i - begin) % inputs.width();
    }
  }
}

void synchronize() { TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize()); }

// Around the sizes of tiles (16), of the tiles of a block (64) and of a cluster; 0 is padding.
const std::vector<int32_t> kLengths = {1, 2, 0, 15, 16, 17, 63, 64, 65, 130, 300};

std::vector<AttentionSizes> decode_sizes() {
  std::vector<AttentionSizes> all;
  for (const int64_t group : {1, 3, 4, 7, 8, 16}) {
    all.push_back({2 * group, 2, 128, 16, 0, kLengths, {}});
    all.push_back({3 * group, 3, 64, 16, 0, kLengths, {}});
  }
  for (const int64_t page_size : {0, 8, 24, 32, 64, 256}) {
    all.push_back({8, 2, 128, page_size, 0, kLengths, {}});
    all.push_back({8, 2, 128, page_size, 50, kLengths, {}});
  }
  for (const int64_t window : {1, 16, 17, 64, 299, 300}) {
    all.push_back({4, 1, 64, 16, window, kLengths, {}});
  }
  for (const int64_t head_dim : {8, 16, 40, 80, 96, 112, 160, 256}) {
    all.push_back({8, 2, head_dim, 16, 0, kLengths, {}});
    all.push_back({9, 1, head_dim, 0, 33, kLengths, {}});
  }
  return all;
}

template <class T>
class AttentionCuda : public GpuTest {};
using Types = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(AttentionCuda, Types);

TYPED_TEST(AttentionCuda, DecodeMatchesDoublePrecisionInEverySplit) {
  for (const AttentionSizes& sizes : decode_sizes()) {
    AttentionCase<TypeParam> attention(sizes, 11);
    SCOPED_TRACE(testing::PrintToString(sizes));
    for (const int splits : {1, 2, 4, 8, 16}) {
      const int stages = splits == 2 ? 3 : splits == 8 ? 1 : splits == 1 ? 6 : 2;
      for (const bool holds : {false, true}) {
        const DecodePlan plan = {.splits = splits, .stages = stages, .holds = holds};
        attention.spoil_result();
        launch_decode_attention(attention.args(), plan, nullptr);
        expect_attention(attention, "splits " + std::to_string(splits));
        if (this->HasFatalFailure()) return;
      }
    }
    for (const int splits : {1, 2, 16}) {
      attention.spoil_result();
      TRIPTYCH_CUDA_CHECK(
          launch_decode_attention_general(attention.args(), {.splits = splits}, nullptr));
      expect_attention(attention, "general, splits " + std::to_string(splits));
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(AttentionCuda, DecodeOfLongSequences) {
  for (const int64_t window : {0, 1000}) {
    AttentionCase<TypeParam> attention({8, 2, 128, 16, window, {4096, 777, 4001}, {}}, 12);
    ASSERT_TRUE(decode_attention_supports(attention.args()).has_value());
    launch_decode_attention(attention.args(), nullptr);
    expect_attention(attention, "window " + std::to_string(window));
    attention.spoil_result();
    launch_decode_attention(attention.args(), {.splits = 1, .stages = 6}, nullptr);
    expect_attention(attention, "one split, window " + std::to_string(window));
  }
}

TYPED_TEST(AttentionCuda, DecodeOfManySequences) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 300; ++i) lengths.push_back(1 + i * 37 % 300);
  AttentionCase<TypeParam> attention({4, 1, 64, 16, 0, lengths, {}}, 13);
  launch_decode_attention(attention.args(), nullptr);
  expect_attention(attention, "300 sequences");
}

TYPED_TEST(AttentionCuda, ADecodedRowDoesNotDependOnTheOthers) {
  const AttentionCase<TypeParam> crowd({8, 2, 128, 16, 0, {1, 300, 77, 0, 130}, {}}, 14);
  const AttentionCase<TypeParam> alone({8, 2, 128, 16, 0, {77}, {}}, 14, {2});
  for (const DecodePlan plan :
       {DecodePlan{1, 2}, DecodePlan{8, 1}, DecodePlan{8, 1, true}, DecodePlan{16, 6}}) {
    launch_decode_attention(crowd.args(), plan, nullptr);
    launch_decode_attention(alone.args(), plan, nullptr);
    SCOPED_TRACE(plan.splits);
    expect_same_bits(crowd.result_of(2), alone.result_of(0));
  }
}

// The first launch writes, as its result, the newest key (or value) of the second, which may start
// and read ahead while the first is at work.
TYPED_TEST(AttentionCuda, ReadingAheadDoesNotReadTheNewestToken) {
  const AttentionCase<TypeParam> writer({1, 1, 128, 0, 0, {40000}, {}}, 15);
  for (const int32_t length : {1, 16, 17, 300}) {
    for (const DecodePlan plan : {DecodePlan{1, 1}, DecodePlan{1, 6}, DecodePlan{4, 2},
                                  DecodePlan{1, 1, true}, DecodePlan{4, 1, true}}) {
      for (const bool of_keys : {true, false}) {
        std::vector<TypeParam> results[2];
        for (const LaunchOrder order :
             {LaunchOrder::kAfterPrevious, LaunchOrder::kOverlapPrevious}) {
          AttentionCase<TypeParam> reader({4, 1, 128, 0, 0, {length}, {}}, 16);
          AttentionArgs<TypeParam> write = writer.args();
          AttentionArgs<TypeParam> read = reader.args();
          write.out = (of_keys ? read.kv.k : read.kv.v) + (length - 1) * 128;
          write.order = read.order = order;
          const Stream stream = make_stream();
          const GraphExec graph = capture_graph(stream.get(), [&](cudaStream_t s) {
            launch_decode_attention(write, {.splits = 1, .stages = 1}, s);
            launch_decode_attention(read, plan, s);
          });
          synchronize();
          TRIPTYCH_CUDA_CHECK(cudaGraphLaunch(graph.get(), stream.get()));
          synchronize();
          results[order == LaunchOrder::kOverlapPrevious] = reader.result();
        }
        SCOPED_TRACE("length " + std::to_string(length) + " splits " + std::to_string(plan.splits));
        expect_same_bits(results[1], results[0]);
      }
    }
  }
}

std::vector<AttentionSizes> prefill_sizes() {
  const std::vector<int32_t> lengths = {5, 64, 65, 130, 200, 17, 190, 1, 33, 128};
  const std::vector<int32_t> news = {5, 64, 1, 100, 200, 3, 70, 1, 1, 128};
  std::vector<AttentionSizes> all;
  for (const int64_t group : {1, 3, 4, 7, 8, 16}) {
    all.push_back({group > 4 ? group : 2 * group, group > 4 ? 1 : 2, 128, 16, 0, lengths, news});
    all.push_back({group, 1, 64, 16, 0, lengths, news});
  }
  for (const int64_t page_size : {0, 8, 24, 32, 64, 256}) {
    all.push_back({4, 1, 128, page_size, 0, lengths, news});
    all.push_back({4, 1, 128, page_size, 50, lengths, news});
  }
  for (const int64_t window : {1, 16, 64, 65, 199}) {
    all.push_back({2, 1, 64, 16, window, lengths, news});
  }
  for (const int64_t head_dim : {8, 40, 80, 96, 160, 256}) {
    all.push_back({4, 2, head_dim, 16, 0, lengths, news});
    all.push_back({4, 2, head_dim, 0, 33, lengths, news});
  }
  return all;
}

TYPED_TEST(AttentionCuda, PrefillMatchesDoublePrecision) {
  for (const AttentionSizes& sizes : prefill_sizes()) {
    AttentionCase<TypeParam> attention(sizes, 21);
    SCOPED_TRACE(testing::PrintToString(sizes));
    ASSERT_TRUE(prefill_attention_supports(attention.args()).has_value());
    launch_prefill_attention(attention.args(), nullptr);
    expect_attention(attention, "prefill");
    if (this->HasFatalFailure()) return;
    attention.spoil_result();
    TRIPTYCH_CUDA_CHECK(launch_prefill_attention_general(attention.args(), nullptr));
    expect_attention(attention, "general prefill");
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(AttentionCuda, PrefillOfLongSequences) {
  for (const int64_t window : {0, 300}) {
    AttentionCase<TypeParam> attention({4, 1, 128, 16, window, {700, 2100, 40}, {700, 100, 40}},
                                       22);
    launch_prefill_attention(attention.args(), nullptr);
    expect_attention(attention, "window " + std::to_string(window));
  }
}

// More sequences than a warp has lanes.
TYPED_TEST(AttentionCuda, PrefillOfManySequences) {
  std::vector<int32_t> lengths;
  std::vector<int32_t> news;
  for (int32_t i = 0; i < 100; ++i) {
    lengths.push_back(1 + i * 37 % 90);
    news.push_back(1 + i * 11 % lengths.back());
  }
  AttentionCase<TypeParam> attention({4, 1, 64, 16, 0, lengths, news}, 23);
  launch_prefill_attention(attention.args(), nullptr);
  expect_attention(attention, "100 sequences");
}

// Memory checkers run this test alone: every kernel once, small.
TYPED_TEST(AttentionCuda, SmallCasesOfEveryKernel) {
  for (const int64_t head_dim : {64, 128, 136}) {
    for (const int64_t group : {3, 16}) {
      AttentionCase<TypeParam> decode({group, 1, head_dim, 16, 0, {1, 0, 70, 33}, {}}, 31);
      for (const DecodePlan plan : {DecodePlan{1, 1}, DecodePlan{2, 2}, DecodePlan{4, 6}}) {
        launch_decode_attention(decode.args(), plan, nullptr);
        expect_attention(decode, "cluster");
        decode.spoil_result();
        TRIPTYCH_CUDA_CHECK(launch_decode_attention_general(decode.args(), plan, nullptr));
        expect_attention(decode, "general");
      }
    }
    for (const int64_t page_size : {0, 16}) {
      AttentionCase<TypeParam> prefill({3, 1, head_dim, page_size, 20, {1, 70, 40}, {1, 50, 40}},
                                       32);
      launch_prefill_attention(prefill.args(), nullptr);
      expect_attention(prefill, "prefill");
      prefill.spoil_result();
      TRIPTYCH_CUDA_CHECK(launch_prefill_attention_general(prefill.args(), nullptr));
      expect_attention(prefill, "general prefill");
    }
  }
}

class AttentionSupports : public GpuTest {};

TEST_F(AttentionSupports, RowMapsNeedAlignedRowsOfWholePieces) {
  const DeviceBuffer<uint16_t> rows(4096);
  CUtensorMap map;
  EXPECT_EQ(make_row_map(rows.data(), 128, 16, map), cudaSuccess);
  EXPECT_EQ(make_row_map(rows.data() + 1, 128, 16, map), cudaErrorInvalidValue);
  EXPECT_EQ(make_row_map(rows.data(), 0, 16, map), cudaErrorInvalidValue);
}

TEST_F(AttentionSupports, SaysWhichRequirementFails) {
  const AttentionCase<__half> attention({8, 2, 64, 16, 0, {20, 30}, {}}, 41);
  const AttentionArgs<__half> good = attention.args();
  EXPECT_TRUE(decode_attention_supports(good).has_value());
  EXPECT_TRUE(prefill_attention_supports(good).has_value());
  const auto reason = [](const AttentionArgs<__half>& args) {
    const Status decode = decode_attention_supports(args);
    const Status prefill = prefill_attention_supports(args);
    EXPECT_EQ(decode.has_value(), prefill.has_value());
    return decode.has_value() ? std::string("supported") : decode.error().message;
  };
  const auto expect_reason = [&](const AttentionArgs<__half>& args, const char* part) {
    EXPECT_NE(reason(args).find(part), std::string::npos) << reason(args);
  };
  auto args = good;
  args.kv.head_dim = 264;
  expect_reason(args, "head_dim 264");
  args.kv.head_dim = 68;
  expect_reason(args, "head_dim 68");
  args = good;
  args.num_q_heads = 7;
  expect_reason(args, "num_q_heads 7");
  args.num_q_heads = 34;
  expect_reason(args, "17 query heads");
  args = good;
  args.kv.page_size = 12;
  expect_reason(args, "page_size 12");
  args = good;
  args.kv.page_table = nullptr;
  expect_reason(args, "page_table");
  args = good;
  args.q += 1;
  expect_reason(args, "aligned");
  args = good;
  args.kv_lengths = nullptr;
  expect_reason(args, "kv_lengths");
  args = good;
  args.window = -1;
  expect_reason(args, "window -1");
  args = good;
  args.row_starts = nullptr;
  EXPECT_TRUE(decode_attention_supports(args).has_value());
  EXPECT_FALSE(prefill_attention_supports(args).has_value());
}

TEST(DecodePlanOfH200, FillsTheDeviceAndKeepsSplitsWorthwhile) {
  const auto plan = [](int64_t sequences, int64_t keys, int64_t window = 0) {
    return plan_decode_attention({.num_sequences = sequences,
                                  .num_kv_heads = 8,
                                  .max_kv_length = keys,
                                  .window = window,
                                  .num_sms = 132});
  };
  EXPECT_EQ(plan(1, 16).splits, 1);
  EXPECT_EQ(plan(1, 512).splits, 8);
  EXPECT_EQ(plan(1, 512).stages, 1);
  EXPECT_FALSE(plan(1, 512).holds);  // a tile for each warp
  EXPECT_EQ(plan(1, 2048).splits, 8);
  EXPECT_EQ(plan(1, 2048).stages, 1);
  EXPECT_TRUE(plan(1, 2048).holds);
  EXPECT_EQ(plan(1, 4096).splits, 16);
  EXPECT_TRUE(plan(1, 4096).holds);
  EXPECT_EQ(plan(1, 32768).splits, 16);
  EXPECT_EQ(plan(1, 4096, 512).splits, 8);
  EXPECT_EQ(plan(1, 32768).stages, 3);
  EXPECT_FALSE(plan(1, 32768).holds);
  EXPECT_EQ(plan(8, 512).splits, 4);
  EXPECT_EQ(plan(8, 512).stages, 1);
  EXPECT_EQ(plan(8, 8192).splits, 2);
  EXPECT_EQ(plan(8, 8192).stages, 6);
  EXPECT_EQ(plan(32, 2048).splits, 1);
  EXPECT_EQ(plan(32, 2048).stages, 3);
  EXPECT_EQ(plan(128, 512).splits, 1);
  EXPECT_EQ(plan(128, 100000).splits, 8);
}

TEST(DecodePlanOfAnyDevice, StaysWithinTheWorkspace) {
  for (int64_t sequences = 1; sequences < 2000; sequences = sequences * 3 / 2 + 1) {
    for (int64_t keys = 1; keys < 200000; keys *= 5) {
      const DecodePlan plan = plan_decode_attention({.num_sequences = sequences,
                                                     .num_kv_heads = 8,
                                                     .max_kv_length = keys,
                                                     .num_sms = 108,
                                                     .max_split_blocks = kMaxSplitBlocks});
      if (plan.splits == 1) continue;
      EXPECT_LE(sequences * 8 * plan.splits, kMaxSplitBlocks);
      EXPECT_LE(sequences * 8, kMaxSplitPairs);
      EXPECT_LE(plan.splits, kMaxDecodeSplits);
    }
  }
}

TEST(AttentionCost, CountsKeysOnceForEachKvHead) {
  const KernelCost cost = attention_cost(2, 100, 130, 32, 8, 128);
  EXPECT_EQ(cost.bytes_read, 2 * 100 * 8 * 128 * 2 + 2 * 32 * 128 * 2);
  EXPECT_EQ(cost.bytes_written, 2 * 32 * 128 * 2);
  EXPECT_EQ(cost.flops, 4 * 130 * 32 * 128);
}

}  // namespace
}  // namespace triptych
