// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/random_model.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

// Partial sums of a product differ from the whole by f32 rounding, and a key or value beside the
// border between two f16 numbers then rounds the other way: 2^-11 of it. Logits are of order 3.
constexpr float kTolerance = 2e-3f;

struct Model {
  std::string name;
  std::shared_ptr<const ModelWeights> weights;
  std::vector<int> tps;
};

ModelConfig config_of(int64_t q_heads, int64_t kv_heads, int64_t head_dim) {
  ModelConfig config = tiny_config();
  config.num_q_heads = q_heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  return config;
}

const std::vector<Model>& models() {
  static const std::vector<Model> all = [] {
    ModelConfig tied = config_of(4, 4, 16);
    tied.tie_word_embeddings = true;
    ModelConfig qwen2 = config_of(4, 2, 16);
    qwen2.architecture = "qwen2";
    qwen2.qkv_bias = true;
    ModelConfig qwen3 = config_of(4, 2, 32);
    qwen3.architecture = "qwen3";
    qwen3.qk_norm = true;
    return std::vector<Model>{
        {"KV heads divided and replicated",
         random_model(config_of(4, 2, 16), DType::kF16, 1),
         {2, 4}},
        {"4 blocks of down for 3 ranks", random_model(config_of(6, 3, 32), DType::kQ4_1, 2), {3}},
        {"one KV head", random_model(config_of(4, 1, 32), DType::kQ4_1, 3), {2, 4}},
        {"tied", random_model(tied, DType::kF32, 4), {2, 4}},
        {"biases of the heads", random_model(qwen2, DType::kF16, 5), {2, 4}},
        {"norms of the heads", random_model(qwen3, DType::kF16, 6), {2, 4}}};
  }();
  return all;
}

EngineOptions options(std::string_view runtime, int tp, int64_t max_batch = 1) {
  return {.features = RuntimeFeatures::parse(runtime, DeviceKind::kCpu).value(),
          .num_threads = 2,
          .max_batch = max_batch,
          .max_sequence = 80,
          .page_size = 5,
          .tensor_parallel = tp};
}

std::unique_ptr<Engine> engine_of(const Model& model, const EngineOptions& engine_options) {
  auto engine = make_engine(model.weights, engine_options);
  EXPECT_TRUE(engine) << model.name << ": " << engine.error().to_string();
  return std::move(engine).value();
}

std::vector<float> scores(Engine& engine, std::span<const int32_t> tokens, int64_t prefill) {
  std::vector<float> all;
  const auto visit = [&](int64_t, std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  };
  const Status status = engine.score(tokens, prefill, visit);
  EXPECT_TRUE(status) << status.error().to_string();
  return all;
}

std::vector<Request> random_requests(uint64_t seed, int64_t count) {
  RandomStream random(seed);
  std::vector<Request> requests(static_cast<size_t>(count));
  for (Request& request : requests) {
    const auto length = static_cast<int64_t>(1 + random.below(20));
    request.prompt = random_tokens(random, length, tiny_config().vocab_size);
    request.max_new_tokens = static_cast<int64_t>(1 + random.below(12));
  }
  return requests;
}

std::vector<std::vector<int32_t>> generate(Engine& engine, std::span<const Request> requests,
                                           ActivitySink* sink = nullptr) {
  const Result<GenerateResult> result = engine.generate(requests, sink);
  EXPECT_TRUE(result) << result.error().to_string();
  std::vector<std::vector<int32_t>> tokens;
  for (const RequestResult& request : result->requests) tokens.push_back(request.tokens);
  return tokens;
}

TEST(Executor, LogitsOfManyRanksAreThoseOfOne) {
  RandomStream random(5);
  const auto tokens = random_tokens(random, 75, tiny_config().vocab_size);  // two pieces of logits
  for (const Model& model : models()) {
    for (const char* runtime : {"eager", "fast"}) {
      const std::vector<float> one = scores(*engine_of(model, options(runtime, 1)), tokens, 70);
      for (const int tp : model.tps) {
        const std::vector<float> many = scores(*engine_of(model, options(runtime, tp)), tokens, 70);
        ASSERT_EQ(many.size(), one.size());
        float worst = 0;
        for (size_t i = 0; i < one.size(); ++i) worst = std::max(worst, std::abs(many[i] - one[i]));
        EXPECT_LE(worst, kTolerance) << model.name << ", " << runtime << ", tp " << tp;
        EXPECT_GT(worst, 0) << "the same sums: nothing was divided";
      }
    }
  }
}

/// By how much the best token after `tokens` leads the second best.
float top_margin(Engine& engine, const std::vector<int32_t>& tokens) {
  std::vector<float> last;
  const auto visit = [&](int64_t, std::span<const float> logits) {
    last.assign(logits.begin(), logits.end());
  };
  EXPECT_TRUE(engine.score(tokens, static_cast<int64_t>(tokens.size()), visit));
  std::partial_sort(last.begin(), last.begin() + 2, last.end(), std::greater<>());
  return last[0] - last[1];
}

TEST(Executor, GreedyTokensOfManyRanksAreThoseOfOneUnlessTheChoiceIsClose) {
  int64_t compared = 0;
  int64_t close = 0;
  for (const Model& model : models()) {
    const std::vector<Request> requests = random_requests(6, 16);
    const auto reference = engine_of(model, options("fast", 1, 3));
    const auto one = generate(*reference, requests);
    for (const int tp : model.tps) {
      const auto many = generate(*engine_of(model, options("fast", tp, 3)), requests);
      for (size_t r = 0; r < requests.size(); ++r) {
        ASSERT_EQ(many[r].size(), one[r].size());
        std::vector<int32_t> context = requests[r].prompt;
        for (size_t i = 0; i < one[r].size(); ++i, ++compared) {
          if (many[r][i] != one[r][i]) {
            EXPECT_LE(top_margin(*reference, context), 2 * kTolerance) << model.name;
            ++close;
            break;  // from here on the contexts differ
          }
          context.push_back(one[r][i]);
        }
      }
    }
  }
  EXPECT_GT(compared, 500);
  EXPECT_LT(close, 10);
}

TEST(Executor, EveryRuntimeAndAllReduceGivesTheSameTokensForTheSameRanks) {
  const Model& model = models()[0];
  for (const int64_t batch : {1, 4}) {
    const std::vector<Request> requests = random_requests(7, 10);
    const auto expected = generate(*engine_of(model, options("eager", 2, batch)), requests);
    for (const char* runtime : {"fast", "fused", "paged_kv", "continuous_batching", "arena",
                                "device_sampling", "chunked_prefill"}) {
      const auto engine = engine_of(model, options(runtime, 2, batch));
      EXPECT_EQ(generate(*engine, requests), expected) << runtime;
      EXPECT_EQ(generate(*engine, requests), expected) << runtime << ", second run";
    }
    for (const AllReduceKind kind : {AllReduceKind::kOneShot, AllReduceKind::kTwoShot}) {
      for (const int threads : {1, 2, 5}) {
        EngineOptions chosen = options("fast", 2, batch);
        chosen.all_reduce = kind;
        chosen.num_threads = threads;
        EXPECT_EQ(generate(*engine_of(model, chosen), requests), expected) << all_reduce_name(kind);
      }
    }
  }
}

TEST(Executor, EveryRankReportsAsADeviceOfItsOwn) {
  const Model& model = models()[0];
  const int64_t layers = model.weights->config.num_layers;
  for (const char* runtime : {"eager", "fast"}) {
    RecordSink sink;
    const auto engine = engine_of(model, options(runtime, 4));
    const std::vector<Request> requests = {{.prompt = {1, 2, 3}, .max_new_tokens = 5}};
    generate(*engine, requests, &sink);
    EXPECT_FALSE(sink.misused());
    const auto steps = static_cast<int64_t>(sink.phases().size());
    EXPECT_EQ(steps, 5);
    for (int32_t device = 0; device < 4; ++device) {
      const RecordSink& records = sink.device(device);
      EXPECT_EQ(records.count("all_reduce"), 2 * layers * steps) << device;
      EXPECT_EQ(records.count("all_gather"), steps) << device;
      EXPECT_EQ(records.count("attention_decode"), layers * (steps - 1)) << device;
      int64_t at = sink.phases().front().start_ns;
      for (const RecordSink::Record& record : records.records()) {
        if (record.start_ns >= sink.phases().back().end_ns) break;
        EXPECT_GE(record.start_ns, at) << record.name << " overlaps the one before";
        at = record.end_ns;
      }
    }
    const std::string sampled = std::string(runtime) == "fast" ? "argmax" : "logits_to_host";
    EXPECT_EQ(sink.count(sampled), steps);
    EXPECT_EQ(sink.device(1).count(sampled), 0) << "rank 0 alone samples";
    EXPECT_EQ(sink.count("rank_join"), steps) << "rank 0 waits for the others";
    const auto before = sink.device(1).records().size();
    generate(*engine, requests);
    EXPECT_EQ(sink.device(1).records().size(), before) << "untraced, nothing is reported";
  }
}

TEST(Executor, StubCommunicatesNothingAndStillRuns) {
  RecordSink sink;
  EngineOptions stub = options("fast", 2, 2);
  stub.all_reduce = AllReduceKind::kStub;
  const std::vector<Request> requests = random_requests(8, 5);
  const auto tokens = generate(*engine_of(models()[0], stub), requests, &sink);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(static_cast<int64_t>(tokens[i].size()), requests[i].max_new_tokens);
  }
  for (const char* name : {"all_reduce", "all_gather", "all_reduce_wait", "all_gather_wait"}) {
    EXPECT_EQ(sink.count(name) + sink.device(1).count(name), 0) << name;
  }
}

TEST(Executor, ARankThatFailsStopsTheOthersAndTheNextRunIsWhole) {
  const Model& model = models()[0];
  const std::vector<Request> requests = random_requests(9, 6);
  const auto engine = engine_of(model, options("fast", 4, 2));
  const auto expected = generate(*engine, requests);
  RandomStream random(10);
  const auto tokens = random_tokens(random, 80, tiny_config().vocab_size);
  for (const int64_t failing : {0, 40, 79}) {  // in the first and the second piece of logits
    const Status status = engine->score(tokens, 80, [&](int64_t position, std::span<const float>) {
      if (position == failing) throw std::bad_alloc();
    });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(generate(*engine, requests), expected);
  }
}

TEST(Executor, MemoryAndCostAreThoseOfAllRanks) {
  const Model& model = models()[0];
  const auto one = engine_of(model, options("fast", 1));
  const auto four = engine_of(model, options("fast", 4));
  const ModelWeights& whole = *model.weights;
  int64_t kv_weights = 0;
  for (const LayerWeights& layer : whole.layers) kv_weights += layer.k.bytes() + layer.v.bytes();
  const int64_t norms = 4 * whole.config.hidden_size * (2 * whole.config.num_layers + 1);
  const int64_t embed_row = row_bytes(whole.embed.dtype, whole.embed.columns);
  // 2 KV heads on 4 ranks: each of them twice.
  const int64_t replicated = kv_weights + 3 * norms;
  EXPECT_EQ(four->memory().weight_bytes - one->memory().weight_bytes,
            replicated + 3 * whole.embed.bytes());
  EXPECT_EQ(four->memory().peak_kv_bytes, 2 * one->memory().peak_kv_bytes);
  const int64_t kv_token = whole.config.kv_bytes_per_token(2);
  EXPECT_EQ(four->decode_step_cost(2, 10).bytes_read - one->decode_step_cost(2, 10).bytes_read,
            replicated + 2 * (3 * embed_row + 10 * kv_token));
}

TEST(Executor, RefusesWhatCannotBeDivided) {
  const std::vector<std::pair<int, const char*>> cases = {
      {3, "does not divide the 4 query heads"}, {0, "expected 1 to 64"}, {65, "expected 1 to 64"}};
  for (const auto& [tp, message] : cases) {
    const auto engine = make_engine(models()[0].weights, options("fast", tp));
    ASSERT_FALSE(engine);
    EXPECT_THAT(engine.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace triptych
