// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What a request gets beside others, against what it gets alone. Bit by bit where kernels promise
// it: streaming linear layers sum in an order that is the same for 1 to 8 rows and for 9 to 16,
// decode attention in one that depends on how often keys are split, and these sequences are too
// short to be split. Elsewhere sums round differently, and near ties are counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "engine/executor.h"
#include "tests/support/cuda_engine.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

// Fewer than two tiles of 64 keys: one block reads all keys of a KV head in every batch.
constexpr int64_t kShortSequence = 112;
constexpr int64_t kLongSequence = 1200;
// Prompts are read alone, so that a row meets others in decode steps only.
constexpr const char* kDecodeRuntime =
    "graph+fused+paged_kv+continuous_batching+device_sampling+arena";

/// Large enough that blocks share columns and rows of a matrix.
std::shared_ptr<const ModelWeights> weights_of(DType dtype) {
  ModelConfig config = base_config();
  config.hidden_size = 512;
  config.intermediate_size = 1408;
  config.num_q_heads = 8;
  config.num_kv_heads = 2;
  config.num_layers = 2;
  config.vocab_size = 512;
  return model_of(config, dtype, 7);
}

std::vector<int32_t> tokens_of(int64_t sequence, int64_t count) {
  RandomStream random(100 + static_cast<uint64_t>(sequence));
  return random_tokens(random, count, 512);
}

/// Logits of sequence 0 in decode steps of `batch` sequences; it lies in the middle of the batch,
/// and the others have other lengths.
std::vector<float> decode_logits(const std::shared_ptr<const ModelWeights>& weights,
                                 const char* runtime, int64_t batch, int64_t max_sequence) {
  constexpr int64_t kSteps = 12;
  EngineOptions o = options(runtime, DeviceKind::kCuda, batch);
  o.max_sequence = max_sequence;
  Executor executor({weights}, o);
  std::vector<StepSequence> sequences;
  std::vector<std::vector<int32_t>> texts;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t id = (i + batch - batch / 2) % batch;  // row batch / 2 is sequence 0
    const int64_t length = (max_sequence - kSteps) * (10 - id % 7) / 10;
    texts.push_back(tokens_of(id, length + kSteps));
    std::vector<int32_t> positions;
    for (int64_t p = 0; p < length; ++p) positions.push_back(static_cast<int32_t>(p));
    sequences.push_back({i, 0, length});
    executor.score({.tokens = std::span(texts.back()).first(static_cast<size_t>(length)),
                    .positions = positions,
                    .sequences = {&sequences.back(), 1}},
                   [](int64_t, std::span<const float>) {});
    sequences.back() = {i, length, 1};
  }
  std::vector<float> logits;
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<int32_t> tokens;
    std::vector<int32_t> positions;
    for (size_t i = 0; i < sequences.size(); ++i) {
      tokens.push_back(texts[i][static_cast<size_t>(sequences[i].first_position)]);
      positions.push_back(static_cast<int32_t>(sequences[i].first_position));
    }
    executor.score({.tokens = tokens, .positions = positions, .sequences = sequences},
                   [&](int64_t row, std::span<const float> values) {
                     if (row != batch / 2) return;
                     logits.insert(logits.end(), values.begin(), values.end());
                   });
    for (StepSequence& sequence : sequences) ++sequence.first_position;
  }
  executor.wait();  // the last step lets go of the cache
  return logits;
}

int64_t count_different(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  return count;
}

class BatchInvarianceCuda : public GpuTest, public testing::WithParamInterface<DType> {};

TEST_P(BatchInvarianceCuda, LogitsOfShortSequencesAreTheSameBitsWithinABlockOfRows) {
  const auto weights = weights_of(GetParam());
  for (const char* runtime : {"fused+paged_kv+arena", "paged_kv", "eager"}) {
    const std::vector<float> one = decode_logits(weights, runtime, 1, kShortSequence);
    for (const int64_t batch : {2, 4, 8}) {
      EXPECT_EQ(count_different(one, decode_logits(weights, runtime, batch, kShortSequence)), 0)
          << runtime << " batch " << batch;
    }
    const std::vector<float> nine = decode_logits(weights, runtime, 9, kShortSequence);
    for (const int64_t batch : {13, 16}) {
      EXPECT_EQ(count_different(nine, decode_logits(weights, runtime, batch, kShortSequence)), 0)
          << runtime << " batch " << batch;
    }
    std::printf("%s: of %zu logits differ from those alone: %lld at batch 9, %lld at batch 32\n",
                runtime, one.size(), static_cast<long long>(count_different(one, nine)),
                static_cast<long long>(
                    count_different(one, decode_logits(weights, runtime, 32, kShortSequence))));
  }
}

TEST_P(BatchInvarianceCuda, LongSequencesAreSplitByTheBatchAndTheDifferenceIsCounted) {
  const auto weights = weights_of(GetParam());
  const std::vector<float> one = decode_logits(weights, "fused+paged_kv+arena", 1, kLongSequence);
  double largest = 0;
  for (const float logit : one) largest = std::max(largest, std::abs(static_cast<double>(logit)));
  for (const int64_t batch : {4, 8, 13, 32}) {
    const std::vector<float> many =
        decode_logits(weights, "fused+paged_kv+arena", batch, kLongSequence);
    double worst = 0;
    for (size_t i = 0; i < one.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(one[i]) - many[i]));
    }
    EXPECT_LT(worst, tolerance(GetParam()) * largest);
    std::printf("batch %lld: %lld of %zu logits differ, by %.5f at most\n",
                static_cast<long long>(batch), static_cast<long long>(count_different(one, many)),
                one.size(), worst);
  }
}

/// Requests that differ from what they get alone, beside `neighbours` others.
int64_t different_requests(const std::shared_ptr<const ModelWeights>& weights, const char* runtime,
                           const std::vector<Request>& requests, int64_t neighbours,
                           int64_t max_sequence, DType dtype) {
  EngineOptions o = options(runtime, DeviceKind::kCuda, neighbours + 1);
  o.max_sequence = max_sequence;
  const auto crowd = engine_of(weights, o);
  o.max_batch = 1;
  const auto alone = engine_of(weights, o);
  int64_t different = 0;
  for (size_t first = 0; first + neighbours < requests.size(); first += neighbours + 1) {
    const std::span group = std::span(requests).subspan(first, neighbours + 1);
    const GenerateResult together = crowd->generate(group, nullptr).value();
    for (size_t i = 0; i < group.size(); ++i) {
      const GenerateResult single = alone->generate({&group[i], 1}, nullptr).value();
      EXPECT_EQ(together.requests[i].tokens.size(), single.requests[0].tokens.size());
      different += differ(*alone, group[i], together.requests[i].tokens, single.requests[0].tokens,
                          8 * tolerance(dtype));  // logits reach 4
    }
  }
  return different;
}

std::vector<Request> requests_of(int64_t longest, bool same_length) {
  RandomStream random(9);
  std::vector<Request> requests(32);
  for (Request& request : requests) {
    const auto shorter =
        same_length ? 0 : static_cast<int64_t>(random.below(static_cast<uint64_t>(longest - 40)));
    request.prompt = random_tokens(random, longest - 33 - shorter, 512);
    request.max_new_tokens = same_length ? 32 : 1 + static_cast<int64_t>(random.below(32));
  }
  return requests;
}

TEST_P(BatchInvarianceCuda, ARequestsTokensBesideNeighbours) {
  const auto weights = weights_of(GetParam());
  for (const int64_t longest : {kShortSequence, kLongSequence}) {
    for (const bool same_length : {true, false}) {
      const std::vector<Request> requests = requests_of(longest, same_length);
      for (const int64_t neighbours : {3, 7, 12, 31}) {
        for (const char* runtime : {kDecodeRuntime, "fast"}) {
          const int64_t different =
              different_requests(weights, runtime, requests, neighbours, longest, GetParam());
          const bool promised =
              longest == kShortSequence && neighbours < 8 && runtime == kDecodeRuntime;
          if (promised) {
            EXPECT_EQ(different, 0) << neighbours << " neighbours";
          }
          std::printf("%lld tokens, %s lengths, %lld neighbours, %s: %lld of %lld differ%s\n",
                      static_cast<long long>(longest), same_length ? "same" : "other",
                      static_cast<long long>(neighbours),
                      runtime == kDecodeRuntime ? "prompts alone" : "fast",
                      static_cast<long long>(different),
                      static_cast<long long>(32 / (neighbours + 1) * (neighbours + 1)),
                      promised ? " (promised: none)" : "");
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BatchInvarianceCuda, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

}  // namespace
}  // namespace triptych
