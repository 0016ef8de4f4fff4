// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The loop with a step issued before the tokens of the last are known (overlap), against the same
// loop without: stop tokens that come too late for the plan, preemption, arrivals.
#include "engine/generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/cuda_engine.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

constexpr int kMixes = 100;
constexpr const char* kRuntimesWithSampling[] = {
    "fused+paged_kv+continuous_batching+device_sampling+chunked_prefill",
    "graph+fused+paged_kv+continuous_batching+device_sampling+arena",
    "graph+fused+paged_kv+continuous_batching+device_sampling+arena+chunked_prefill",
    "paged_kv+device_sampling"};

struct Counts {
  int64_t requests = 0;
  int64_t different = 0;
  int64_t stopped = 0;
  int64_t preemptions = 0;
};

class GenerationCuda : public GpuTest {
 protected:
  static std::shared_ptr<const ModelWeights> weights_with_stops() {
    ModelConfig config = base_config();
    config.vocab_size = 24;  // a request of 24 tokens meets its stop token more often than not
    config.eos_token_id = 5;
    return model_of(config, DType::kF16, 70);
  }

  static EngineOptions random_options(RandomStream& random, int64_t longest) {
    EngineOptions o = options(kRuntimesWithSampling[random.below(std::size(kRuntimesWithSampling))],
                              DeviceKind::kCuda, 2 + static_cast<int64_t>(random.below(5)));
    o.page_size = 8;
    o.prefill_chunk = 1 + static_cast<int64_t>(random.below(50));
    o.max_sequence = longest + 24;
    o.kv_cache_tokens = o.max_sequence + o.page_size + static_cast<int64_t>(random.below(40));
    return o;
  }

  static void expect_end(const Request& request, const std::vector<int32_t>& tokens, int32_t eos) {
    const auto stop = std::find(tokens.begin(), tokens.end(), eos);
    if (request.ignore_eos || stop == tokens.end()) {
      EXPECT_EQ(std::ssize(tokens), request.max_new_tokens);
    } else {
      EXPECT_EQ(stop + 1, tokens.end()) << "tokens after the stop token";
    }
  }
};

TEST_F(GenerationCuda, OverlapGivesEveryRequestWhatItGetsWithout) {
  const auto weights = weights_with_stops();
  const auto judge = engine_of(weights, options("fast", DeviceKind::kCuda));
  RandomStream random(71);
  Counts counts;
  for (int mix = 0; mix < kMixes; ++mix) {
    auto requests = random_requests(random, 3 + static_cast<int64_t>(random.below(8)), 40,
                                    weights->config.vocab_size);
    for (Request& request : requests) {
      request.ignore_eos = random.below(4) == 0;
      if (random.below(4) == 0) request.arrival_ns = static_cast<int64_t>(random.below(1000000));
    }
    EngineOptions o = random_options(random, 40);
    const auto plain = engine_of(weights, o)->generate(requests, nullptr);
    o.features.set(RuntimeFeature::kOverlap);
    const auto overlapped = engine_of(weights, o)->generate(requests, nullptr);
    ASSERT_TRUE(plain) << plain.error().to_string();
    ASSERT_TRUE(overlapped) << overlapped.error().to_string();
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<int32_t>& tokens = overlapped->requests[i].tokens;
      EXPECT_EQ(overlapped->requests[i].token_ns.size(), tokens.size());
      EXPECT_TRUE(std::is_sorted(overlapped->requests[i].token_ns.begin(),
                                 overlapped->requests[i].token_ns.end()));
      expect_end(requests[i], tokens, *weights->config.eos_token_id);
      ++counts.requests;
      counts.stopped += std::ssize(tokens) < requests[i].max_new_tokens;
      counts.preemptions += overlapped->requests[i].preemptions;
      counts.different += differ(*judge, requests[i], tokens, plain->requests[i].tokens,
                                 8 * tolerance(DType::kF16));  // logits reach 4
    }
  }
  EXPECT_GT(counts.preemptions, 20) << "the mixes must reach what they test";
  EXPECT_GT(counts.stopped, 50);
  std::printf("%lld of %lld requests differ after a near tie, %lld stopped, %lld preemptions\n",
              static_cast<long long>(counts.different), static_cast<long long>(counts.requests),
              static_cast<long long>(counts.stopped), static_cast<long long>(counts.preemptions));
}

TEST_F(GenerationCuda, HostWorkAndWaitingLieWithinThePass) {
  const auto weights = weights_with_stops();
  const std::vector<Request> requests(3, {.prompt = {5, 6, 7}, .max_new_tokens = 12});
  for (const char* runtime : {"eager", "fast"}) {
    const auto result =
        engine_of(weights, options(runtime, DeviceKind::kCuda))->generate(requests, nullptr);
    ASSERT_TRUE(result) << result.error().to_string();
    ASSERT_TRUE(result->device_wait_ns && result->decode_host_ns && result->prefill_host_ns);
    EXPECT_GT(*result->decode_host_ns, 0);
    EXPECT_GT(*result->prefill_host_ns, 0);
    EXPECT_LE(*result->device_wait_ns + *result->decode_host_ns + *result->prefill_host_ns,
              result->end_ns - result->start_ns);
  }
}

}  // namespace
}  // namespace triptych
