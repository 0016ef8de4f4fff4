// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The engine on a CUDA device against the CPU's in f32 arithmetic: every family and runtime, both
// element types, one by one and crowded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "engine/engine.h"
#include "tests/support/cuda_engine.h"
#include "tests/support/gpu_test.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

struct Family {
  const char* name;
  ModelConfig config;
};

std::vector<Family> families() {
  std::vector<Family> all(8, {"llama", base_config()});
  all[1] = {"interleaved tied", base_config()};
  all[1].config.rope_kind = RopeKind::kInterleaved;
  all[1].config.tie_word_embeddings = true;
  all[2] = {"bias, seven heads a group", base_config()};
  all[2].config.qkv_bias = true;
  all[2].config.num_q_heads = 7;
  all[2].config.num_kv_heads = 1;
  all[3] = {"qk_norm, wide heads", base_config()};
  all[3].config.qk_norm = true;
  all[3].config.head_dim = 128;
  all[4] = {"window", base_config()};
  all[4].config.sliding_window = 9;
  all[5] = {"small heads, no group", base_config()};
  all[5].config.head_dim = 24;
  all[5].config.num_kv_heads = 4;
  all[6] = {"sizes that the streaming kernels refuse", base_config()};
  all[6].config.hidden_size = 72;
  all[6].config.intermediate_size = 200;
  all[6].config.vocab_size = 97;
  all[7] = {"everything", base_config()};
  all[7].config.qkv_bias = all[7].config.qk_norm = true;
  all[7].config.sliding_window = 33;
  return all;
}

class EngineCuda : public GpuTest {};

TEST_F(EngineCuda, EveryFamilyRuntimeAndTypeMatchesTheCpu) {
  RandomStream random(3);
  uint64_t seed = 1;
  for (const Family& family : families()) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const auto weights = model_of(family.config, dtype, seed++);
      const auto tokens = random_tokens(random, 150, family.config.vocab_size);
      const auto cpu = engine_of(weights, options("fast", DeviceKind::kCpu));
      const std::vector<float> expected = scores(*cpu, tokens, 120);
      for (const char* runtime : kRuntimes) {
        const auto cuda = engine_of(weights, options(runtime, DeviceKind::kCuda));
        const std::vector<float> found = scores(*cuda, tokens, 120);
        ASSERT_EQ(found.size(), expected.size());
        double worst = 0;
        double largest = 0;
        for (size_t i = 0; i < found.size(); ++i) {
          worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i]));
          largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
        }
        EXPECT_LT(worst, tolerance(dtype) * largest)
            << family.name << " " << dtype_info(dtype).name << " " << runtime;
      }
    }
  }
}

TEST_F(EngineCuda, CrowdedMixesGiveEachRequestWhatItGetsAlone) {
  ModelConfig config = base_config();
  const auto weights = model_of(config, DType::kF16, 40);
  EngineOptions alone_options = options("fast", DeviceKind::kCuda);
  alone_options.max_sequence = 2100;
  const auto alone = engine_of(weights, alone_options);
  RandomStream random(41);
  int64_t preemptions = 0;
  int64_t compared = 0;
  int64_t different = 0;
  for (int mix = 0; mix < 200; ++mix) {
    const int64_t longest = mix % 20 == 0 ? 2000 : mix % 5 == 0 ? 300 : 40;
    auto requests = random_requests(random, 2 + static_cast<int64_t>(random.below(8)), longest,
                                    config.vocab_size);
    for (Request& request : requests) {
      if (random.below(4) == 0) request.arrival_ns = static_cast<int64_t>(random.below(2000000));
    }
    EngineOptions crowded = options(kRuntimes[random.below(kRuntimes.size())], DeviceKind::kCuda,
                                    1 + static_cast<int64_t>(random.below(6)));
    crowded.page_size = 8 * (1 + static_cast<int64_t>(random.below(3)));
    crowded.prefill_chunk = 1 + static_cast<int64_t>(random.below(50));
    crowded.max_sequence = longest + 24;
    crowded.kv_cache_tokens = crowded.max_sequence + crowded.page_size +
                              static_cast<int64_t>(random.below(static_cast<uint64_t>(longest)));
    const auto result = engine_of(weights, crowded)->generate(requests, nullptr);
    ASSERT_TRUE(result) << result.error().to_string();
    for (size_t i = 0; i < requests.size(); ++i) {
      preemptions += result->requests[i].preemptions;
      Request single = requests[i];
      single.arrival_ns.reset();
      const auto expected = alone->generate({&single, 1}, nullptr);
      ASSERT_TRUE(expected) << expected.error().to_string();
      ++compared;
      EXPECT_EQ(result->requests[i].tokens.size(), expected->requests[0].tokens.size());
      different += differ(*alone, single, result->requests[i].tokens, expected->requests[0].tokens,
                          8 * tolerance(DType::kF16));  // logits reach 4
    }
  }
  EXPECT_GT(preemptions, 20) << "the mixes must reach what they test";
  std::printf("%lld of %lld requests differ after a near tie, %lld preemptions\n",
              static_cast<long long>(different), static_cast<long long>(compared),
              static_cast<long long>(preemptions));
}

TEST_F(EngineCuda, AStopTokenEndsARequestThatIsAlreadyPlannedOn) {
  const auto weights = model_of(base_config(), DType::kF16, 50);
  RandomStream random(51);
  for (const char* runtime : {"eager", "fast"}) {
    auto requests = random_requests(random, 9, 40, base_config().vocab_size);
    const auto free_engine = engine_of(weights, options(runtime, DeviceKind::kCuda, 3));
    const GenerateResult whole = free_engine->generate(requests, nullptr).value();
    auto stopping = std::make_shared<ModelWeights>(*weights);
    stopping->config.eos_token_id = whole.requests[0].tokens[whole.requests[0].tokens.size() / 2];
    for (Request& request : requests) request.ignore_eos = false;
    const auto engine = engine_of(stopping, options(runtime, DeviceKind::kCuda, 3));
    const GenerateResult cut = engine->generate(requests, nullptr).value();
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<int32_t>& all = whole.requests[i].tokens;
      const auto stop = std::find(all.begin(), all.end(), *stopping->config.eos_token_id);
      const auto kept = std::min(stop - all.begin() + 1, std::ssize(all));
      EXPECT_EQ(std::ssize(cut.requests[i].tokens), kept) << runtime << " request " << i;
    }
  }
}

TEST_F(EngineCuda, SampledTokensAreTheSameOnEveryRuntimeAndInEveryBatch) {
  const auto weights = model_of(base_config(), DType::kF16, 60);
  RandomStream random(61);
  const auto requests = random_requests(random, 6, 30, base_config().vocab_size);
  std::vector<std::vector<int32_t>> first;
  for (const char* runtime : {"fast", "eager", "arena", "fused+device_sampling"}) {
    EngineOptions sampled = options(runtime, DeviceKind::kCuda, 6);
    sampled.sampling = {.temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 7};
    const GenerateResult result = engine_of(weights, sampled)->generate(requests, nullptr).value();
    int64_t equal = 0;
    int64_t total = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (first.size() == i) first.push_back(result.requests[i].tokens);
      const auto& tokens = result.requests[i].tokens;
      equal += std::mismatch(tokens.begin(), tokens.end(), first[i].begin()).first - tokens.begin();
      total += std::ssize(tokens);
    }
    // The numbers drawn are the same; a probability that rounds differently may still move a token.
    EXPECT_GT(equal * 10, total * 7) << runtime;
  }
}

TEST_F(EngineCuda, TracedPassesReportTheDevicesOperations) {
  const auto weights = model_of(base_config(), DType::kF16, 70);
  const Request request{.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 4};
  RecordSink eager;
  ASSERT_TRUE(
      engine_of(weights, options("eager", DeviceKind::kCuda))->generate({&request, 1}, &eager));
  EXPECT_EQ(eager.count("kv_concat"), 2 * 3 * 4);  // keys and values, 3 layers, 4 steps
  EXPECT_EQ(eager.count("logits_to_host"), 4);
  RecordSink fast;
  ASSERT_TRUE(
      engine_of(weights, options("fast", DeviceKind::kCuda))->generate({&request, 1}, &fast));
  EXPECT_EQ(fast.count("decode_graph"), 3);
  EXPECT_EQ(fast.count("logits_to_host"), 0);
  for (const auto& record : eager.records())
    EXPECT_LE(record.start_ns, record.end_ns) << record.name;
}

// The first chunks of a prompt choose no token, so steps that nobody waits for are under way when
// records are asked for.
TEST_F(EngineCuda, TracedPassesWithChunksAndOverlapLoseNoRecord) {
  const auto weights = model_of(base_config(), DType::kF16, 71);
  RandomStream random(72);
  std::vector<Request> requests(3);
  for (Request& request : requests) {
    request = {.prompt = random_tokens(random, 300, 104), .max_new_tokens = 5};
  }
  RecordSink sink;
  const auto engine = engine_of(weights, options("fast", DeviceKind::kCuda, 3));
  const auto result = engine->generate(requests, &sink);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(sink.count("decode_graph"), result->decode_steps);
  EXPECT_EQ(sink.count("embed"), result->prefill_steps);
  EXPECT_EQ(std::ssize(sink.phases()), result->decode_steps + result->prefill_steps);
}

TEST_F(EngineCuda, NamesTheKernelsThatItChooses) {
  const auto engine =
      engine_of(model_of(base_config(), DType::kF16, 73), options("fast", DeviceKind::kCuda, 64));
  EXPECT_THAT(engine->kernel_choice(1), HasSubstr("q=stream_linear_f16"));
  EXPECT_THAT(engine->kernel_choice(1), HasSubstr("lm_head=stream_linear_f16"));
  EXPECT_THAT(engine->kernel_choice(64), HasSubstr("down=cublaslt_gemm"));
}

TEST_F(EngineCuda, RefusesWhatItCannotRun) {
  EngineOptions pages = options("fast", DeviceKind::kCuda);
  pages.page_size = 5;
  auto engine = make_engine(model_of(base_config(), DType::kF16, 80), pages);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message, HasSubstr("page_size is 5"));
  engine =
      make_engine(random_model(base_config(), DType::kF32, 80), options("fast", DeviceKind::kCuda));
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(engine.error().message, HasSubstr("f16 or bf16"));
  EngineOptions small = options("fast", DeviceKind::kCuda, 64);
  small.memory_limit_bytes = 1 << 20;
  engine = make_engine(model_of(base_config(), DType::kF16, 80), small);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(engine.error().message, HasSubstr("exceed the limit of 1.00 MiB"));
}

TEST_F(EngineCuda, AMemoryLimitBoundsTheKvPool) {
  const auto weights = model_of(base_config(), DType::kF16, 90);
  EngineOptions limited = options("fast", DeviceKind::kCuda, 32);
  const auto free_engine = engine_of(weights, limited);
  limited.memory_limit_bytes = free_engine->memory().peak_bytes() * 2 / 3;
  const auto engine = engine_of(weights, limited);
  EXPECT_LT(engine->memory().peak_kv_bytes, free_engine->memory().peak_kv_bytes);
  EXPECT_LE(engine->memory().peak_bytes(), limited.memory_limit_bytes);
  RandomStream random(91);
  const auto requests = random_requests(random, 40, 300, base_config().vocab_size);
  EXPECT_TRUE(engine->generate(requests, nullptr));
}

}  // namespace
}  // namespace triptych
