// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "kernels/cpu/linear.h"
#include "tests/support/engine_cases.h"
#include "tests/support/random_model.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

RuntimeFeatures features(std::string_view text) {
  return RuntimeFeatures::parse(text, DeviceKind::kCpu).value();
}

std::shared_ptr<const ModelWeights> model() {
  static const std::shared_ptr<const ModelWeights> shared =
      random_model(tiny_config(), DType::kQ4_1, 31);
  return shared;
}

EngineOptions options(std::string_view runtime, int64_t max_batch = 1) {
  return {.features = features(runtime),
          .num_threads = 1,
          .max_batch = max_batch,
          .max_sequence = 64,
          .page_size = 5};
}

std::unique_ptr<Engine> engine_of(const EngineOptions& engine_options,
                                  std::shared_ptr<const ModelWeights> weights = model()) {
  auto engine = make_engine(std::move(weights), engine_options);
  EXPECT_TRUE(engine) << engine.error().to_string();
  return std::move(engine).value();
}

std::vector<Request> random_requests(uint64_t seed, int64_t count) {
  RandomStream random(seed);
  std::vector<Request> requests(static_cast<size_t>(count));
  for (Request& request : requests) {
    request.prompt = random_tokens(random, 1 + static_cast<int64_t>(random.below(20)),
                                   model()->config.vocab_size);
    request.max_new_tokens = 1 + static_cast<int64_t>(random.below(12));
  }
  return requests;
}

std::vector<std::vector<int32_t>> tokens_of(const GenerateResult& result) {
  std::vector<std::vector<int32_t>> tokens;
  for (const RequestResult& request : result.requests) tokens.push_back(request.tokens);
  return tokens;
}

/// Logits of every position; the first `prefill` tokens (0: all) are read at once.
std::vector<float> scores(Engine& engine, std::span<const int32_t> tokens, int64_t prefill = 0) {
  std::vector<float> all;
  const auto visit = [&](int64_t position, std::span<const float> logits) {
    EXPECT_EQ(position * static_cast<int64_t>(logits.size()), static_cast<int64_t>(all.size()));
    all.insert(all.end(), logits.begin(), logits.end());
  };
  if (prefill == 0) prefill = static_cast<int64_t>(tokens.size());
  const Status status = engine.score(tokens, prefill, visit);
  EXPECT_TRUE(status) << status.error().to_string();
  return all;
}

const std::vector<std::string>& runtimes() {
  static const std::vector<std::string> all = {"eager",
                                               "fast",
                                               "fused",
                                               "paged_kv",
                                               "continuous_batching",
                                               "device_sampling",
                                               "arena",
                                               "fused+paged_kv",
                                               "chunked_prefill",
                                               "fused+arena+device_sampling"};
  return all;
}

TEST(Engine, EveryRuntimeGeneratesTheSameTokens) {
  for (const int64_t batch : {1, 3}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<Request> requests = random_requests(seed, 8);
      const auto expected =
          tokens_of(engine_of(options("eager", batch))->generate(requests, nullptr).value());
      for (const std::string& runtime : runtimes()) {
        const auto engine = engine_of(options(runtime, batch));
        EXPECT_EQ(tokens_of(engine->generate(requests, nullptr).value()), expected) << runtime;
        EXPECT_EQ(tokens_of(engine->generate(requests, nullptr).value()), expected)
            << runtime << ", second run";
      }
    }
  }
}

TEST(Engine, EveryRuntimeGivesTheSameLogits) {
  RandomStream random(3);
  const auto tokens = random_tokens(random, 64, model()->config.vocab_size);
  const std::vector<float> expected = scores(*engine_of(options("eager")), tokens);
  EXPECT_EQ(expected.size(), tokens.size() * static_cast<size_t>(model()->config.vocab_size));
  for (const std::string& runtime : runtimes()) {
    EXPECT_EQ(scores(*engine_of(options(runtime)), tokens), expected) << runtime;
  }
}

TEST(Engine, ChunksOfLogitsAreOnePass) {
  EngineOptions wide = options("fast");
  wide.max_sequence = 200;  // four chunks of positions
  RandomStream random(4);
  const auto tokens = random_tokens(random, 193, model()->config.vocab_size);
  const auto engine = engine_of(wide);
  const std::vector<float> all = scores(*engine, tokens);
  const std::vector<float> prefix = scores(*engine, std::span(tokens).first(64));
  ASSERT_EQ(all.size(), 193u * 97u);
  // Causal: later tokens change nothing. The rows are the same; only the number of them differs.
  for (size_t i = 0; i < prefix.size(); ++i) ASSERT_NEAR(all[i], prefix[i], 1e-4f) << i;
}

TEST(Engine, DecodeStepsGiveTheLogitsOfOnePass) {
  RandomStream random(6);
  const auto tokens = random_tokens(random, 40, model()->config.vocab_size);
  for (const std::string& runtime : runtimes()) {
    const auto engine = engine_of(options(runtime));
    const std::vector<float> at_once = scores(*engine, tokens);
    for (const int64_t prefill : {1, 17, 39}) {
      const std::vector<float> stepwise = scores(*engine, tokens, prefill);
      ASSERT_EQ(stepwise.size(), at_once.size());
      // The matrix kernels sum in another order for one row than for many.
      for (size_t i = 0; i < at_once.size(); ++i) {
        ASSERT_NEAR(stepwise[i], at_once[i], 1e-3f) << runtime << " prefill " << prefill;
      }
    }
  }
}

TEST(Engine, GreedyTokensAreTheLargestScores) {
  const std::vector<Request> requests = random_requests(5, 6);
  const auto engine = engine_of(options("fast", 2));
  const auto generated = tokens_of(engine->generate(requests, nullptr).value());
  const int64_t vocab_size = model()->config.vocab_size;
  for (size_t r = 0; r < requests.size(); ++r) {
    std::vector<int32_t> text = requests[r].prompt;
    text.insert(text.end(), generated[r].begin(), generated[r].end());
    const std::vector<float> all = scores(*engine, text);
    for (size_t t = requests[r].prompt.size(); t < text.size(); ++t) {
      const auto row = all.begin() + static_cast<int64_t>(t - 1) * vocab_size;
      const float best = *std::max_element(row, row + vocab_size);
      // A decode step rounds differently than a pass over the whole text, so a near tie may fall
      // either way.
      EXPECT_GE(row[text[t]], best - 1e-3f) << "request " << r << " token " << t;
    }
  }
}

TEST(Engine, ABatchGivesEachRequestWhatItGetsAlone) {
  for (const char* runtime : {"eager", "fast"}) {
    const auto batched = engine_of(options(runtime, 4));
    const auto single = engine_of(options(runtime, 1));
    for (uint64_t seed = 10; seed < 16; ++seed) {
      const std::vector<Request> requests = random_requests(seed, 9);
      const auto together = tokens_of(batched->generate(requests, nullptr).value());
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto alone = tokens_of(single->generate({&requests[i], 1}, nullptr).value());
        EXPECT_EQ(together[i], alone[0]) << runtime << " seed " << seed << " request " << i;
      }
    }
  }
}

/// A runtime with everything on and as little memory and as small chunks as make it work hard.
EngineOptions crowded_options(RandomStream& random, const std::vector<Request>& requests) {
  static const std::vector<std::string> kRuntimes = {"fast", "paged_kv+continuous_batching",
                                                     "paged_kv+chunked_prefill", "paged_kv+fused",
                                                     "continuous_batching+chunked_prefill"};
  const std::string& runtime = kRuntimes[random.below(kRuntimes.size())];
  EngineOptions crowded = options(runtime, 1 + static_cast<int64_t>(random.below(6)));
  crowded.page_size = 1 + static_cast<int64_t>(random.below(7));
  crowded.prefill_chunk = 1 + static_cast<int64_t>(random.below(12));
  size_t longest = 0;
  for (const Request& r : requests) {
    longest = std::max(longest, r.prompt.size() + static_cast<size_t>(r.max_new_tokens));
  }
  crowded.max_sequence = static_cast<int64_t>(longest);
  crowded.kv_cache_tokens = static_cast<int64_t>(longest + random.below(longest)) +
                            crowded.page_size - 1;  // the last page may not be whole
  return crowded;
}

TEST(Engine, TwoHundredCrowdedMixesGiveEachRequestWhatItGetsAlone) {
  const auto single = engine_of(options("eager", 1));
  RandomStream random(77);
  int64_t preemptions = 0;
  int64_t chunked = 0;
  for (uint64_t mix = 0; mix < 200; ++mix) {
    std::vector<Request> requests = random_requests(1000 + mix, 2 + random.below(8));
    for (Request& request : requests) {
      if (random.below(4) == 0) request.arrival_ns = static_cast<int64_t>(random.below(2000000));
    }
    const EngineOptions crowded = crowded_options(random, requests);
    const GenerateResult together = engine_of(crowded)->generate(requests, nullptr).value();
    for (size_t i = 0; i < requests.size(); ++i) {
      preemptions += together.requests[i].preemptions;
      Request alone = requests[i];
      alone.arrival_ns.reset();
      ASSERT_EQ(together.requests[i].tokens,
                tokens_of(single->generate({&alone, 1}, nullptr).value())[0])
          << "mix " << mix << " request " << i << " " << crowded.features.to_string();
    }
    chunked += static_cast<int64_t>(together.prefill_steps > std::ssize(requests));
  }
  EXPECT_GT(preemptions, 50) << "the mixes must reach what they test";
  EXPECT_GT(chunked, 20);
}

TEST(Engine, OpenLoopRequestsCountFromTheTimeTheyWereDue) {
  std::vector<Request> requests = random_requests(5, 6);
  constexpr std::array<int64_t, 6> kArrivals = {4000000, 0, 9000000, 9000000, 1000000, 30000000};
  for (size_t i = 0; i < requests.size(); ++i) requests[i].arrival_ns = kArrivals[i];
  for (const char* runtime : {"eager", "fast"}) {
    const GenerateResult result =
        engine_of(options(runtime, 2))->generate(requests, nullptr).value();
    for (size_t i = 0; i < requests.size(); ++i) {
      const RequestResult& r = result.requests[i];
      EXPECT_EQ(r.submit_ns, result.start_ns + kArrivals[i]);
      EXPECT_GE(r.admit_ns, r.submit_ns) << "read before it arrived";
      EXPECT_EQ(static_cast<int64_t>(r.tokens.size()), requests[i].max_new_tokens);
    }
    EXPECT_GE(result.end_ns - result.start_ns, 30000000) << "waits for the last arrival";
  }
}

TEST(Engine, TheKvBudgetBoundsThePool) {
  EngineOptions small = options("fast", 4);
  small.max_sequence = 25;
  small.kv_cache_tokens = 39;  // seven whole pages of five
  const auto engine = engine_of(small);
  EXPECT_EQ(engine->memory().peak_kv_bytes, 35 * model()->config.kv_bytes_per_token(2));
  const std::vector<Request> requests(
      4, Request{.prompt = std::vector<int32_t>(20, 1), .max_new_tokens = 5});
  EXPECT_EQ(engine->generate(requests, nullptr).value().requests[3].tokens.size(), 5U);
  EXPECT_EQ(scores(*engine, requests[0].prompt).size(), 20U * 97U);
}

TEST(Engine, AKvBudgetThatHoldsNoWholeSequenceIsRefused) {
  for (const char* runtime : {"eager", "fast"}) {
    EngineOptions small = options(runtime, 2);
    small.kv_cache_tokens = 63;
    const auto engine = make_engine(model(), small);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(engine.error().message,
                HasSubstr(std::string("kv_cache_tokens is 63, which is room for ") +
                          (std::string_view(runtime) == "eager" ? "63" : "60") +
                          ", but one sequence may have 64 tokens"));
  }
}

TEST(Engine, TimestampsAreMonotoneAndComplete) {
  for (const char* runtime : {"eager", "fast"}) {
    const std::vector<Request> requests = random_requests(6, 10);
    const auto result = engine_of(options(runtime, 3))->generate(requests, nullptr).value();
    EXPECT_LE(result.start_ns, result.end_ns);
    std::vector<int64_t> finished;
    for (const RequestResult& r : result.requests) finished.push_back(r.token_ns.back());
    std::sort(finished.begin(), finished.end());
    int64_t previous_first = result.start_ns;
    for (size_t i = 0; i < requests.size(); ++i) {
      const RequestResult& r = result.requests[i];
      EXPECT_EQ(static_cast<int64_t>(r.tokens.size()), requests[i].max_new_tokens);
      ASSERT_EQ(r.token_ns.size(), r.tokens.size());
      // Three clients: the first three start at once, each other when one before it has finished.
      EXPECT_EQ(r.submit_ns, i < 3 ? result.start_ns : finished[i - 3]);
      EXPECT_GT(r.token_ns.front(), r.submit_ns);
      EXPECT_GE(r.token_ns.front(), previous_first) << "prefills run in order of submission";
      EXPECT_GE(r.admit_ns, r.submit_ns);
      EXPECT_LT(r.admit_ns, r.token_ns.front());
      EXPECT_EQ(r.preemptions, 0);
      previous_first = r.token_ns.front();
      for (size_t t = 1; t < r.token_ns.size(); ++t) EXPECT_GT(r.token_ns[t], r.token_ns[t - 1]);
      EXPECT_LE(r.token_ns.back(), result.end_ns);
    }
  }
}

TEST(Engine, ContinuousBatchingNeedsNoMoreSteps) {
  for (uint64_t seed = 20; seed < 30; ++seed) {
    const std::vector<Request> requests = random_requests(seed, 10);
    const auto fixed = engine_of(options("eager", 3))->generate(requests, nullptr).value();
    const auto refilled =
        engine_of(options("continuous_batching", 3))->generate(requests, nullptr).value();
    EXPECT_LE(refilled.decode_steps, fixed.decode_steps);
  }
}

TEST(Engine, StopsAfterDeliveringEos) {
  for (const char* runtime : {"eager", "fast"}) {
    SCOPED_TRACE(runtime);
    expect_a_stop_token_is_the_last_one(
        [&](auto weights) { return engine_of(options(runtime), std::move(weights)); }, *model());
  }
}

TEST(Engine, PhasesOfChunkedPrefillCountEveryPromptTokenOnce) {
  EngineOptions chunked = options("fast", 3);
  chunked.prefill_chunk = 7;
  const std::vector<Request> requests = random_requests(7, 5);
  RecordSink sink;
  const auto result = engine_of(chunked)->generate(requests, &sink).value();
  EXPECT_FALSE(sink.misused());
  int64_t read = 0;
  int64_t prefills = 0;
  for (const RecordSink::Phase& phase : sink.phases()) {
    if (phase.kind != PhaseKind::kPrefill) continue;
    EXPECT_EQ(phase.index, prefills++);
    EXPECT_LE(phase.tokens, 7);
    read += phase.tokens;
  }
  int64_t prompts = 0;
  for (const Request& request : requests) prompts += static_cast<int64_t>(request.prompt.size());
  EXPECT_EQ(read, prompts);
  EXPECT_EQ(prefills, result.prefill_steps);
}

TEST(Engine, RecordsLieInsidePhasesAndDoNotOverlap) {
  // Whole prompts: one prefill phase a request. Everything but chunks.
  for (const char* runtime :
       {"eager", "fused+paged_kv+continuous_batching+device_sampling+arena"}) {
    EngineOptions two_threads = options(runtime, 2);
    two_threads.num_threads = 2;
    const auto engine = engine_of(two_threads);
    const std::vector<Request> requests = random_requests(7, 5);
    const auto untraced = tokens_of(engine->generate(requests, nullptr).value());
    RecordSink sink;
    const auto result = engine->generate(requests, &sink).value();
    EXPECT_EQ(tokens_of(result), untraced);
    EXPECT_FALSE(sink.misused());
    int64_t prefills = 0;
    int64_t decodes = 0;
    int64_t decoded = 0;
    int64_t end_ns = result.start_ns;
    for (const RecordSink::Phase& phase : sink.phases()) {
      EXPECT_GE(phase.start_ns, end_ns);
      end_ns = phase.end_ns;
      if (phase.kind == PhaseKind::kPrefill) {
        EXPECT_EQ(phase.index, prefills);
        EXPECT_EQ(phase.tokens, static_cast<int64_t>(requests[prefills].prompt.size()));
        // The first token exists when its prefill ends.
        EXPECT_LE(result.requests[prefills].token_ns[0], phase.end_ns);
        EXPECT_GE(result.requests[prefills].token_ns[0], phase.start_ns);
        ++prefills;
      } else {
        EXPECT_EQ(phase.index, decodes++);
        decoded += phase.tokens;
      }
    }
    EXPECT_LE(end_ns, result.end_ns);
    EXPECT_EQ(prefills, 5);
    EXPECT_EQ(decodes, result.decode_steps);
    int64_t expected = 0;
    for (const Request& request : requests) expected += request.max_new_tokens - 1;
    EXPECT_EQ(decoded, expected);
    int64_t previous_end = 0;
    for (const RecordSink::Record& record : sink.records()) {
      ASSERT_GE(record.phase, 0) << record.name << " outside of all phases";
      EXPECT_EQ(record.stream_id, 0);
      EXPECT_GE(record.start_ns, previous_end) << record.name;
      EXPECT_GE(record.end_ns, record.start_ns) << record.name;
      EXPECT_GE(record.start_ns, sink.phases()[record.phase].start_ns);
      EXPECT_LE(record.end_ns, sink.phases()[record.phase].end_ns);
      if (record.kind == ActivityKind::kKernel) {
        EXPECT_GT(record.bytes, 0) << record.name;
      }
      previous_end = record.end_ns;
    }
  }
}

TEST(Engine, ATraceShowsWhatTheRuntimeLacks) {
  const std::vector<Request> requests = random_requests(8, 3);
  RecordSink eager;
  RecordSink fast;
  static_cast<void>(engine_of(options("eager", 2))->generate(requests, &eager).value());
  static_cast<void>(engine_of(options("fast", 2))->generate(requests, &fast).value());
  for (const char* name : {"alloc", "free", "kv_concat", "logits_to_host", "add", "swiglu"}) {
    EXPECT_GT(eager.count(name), 0) << name;
    EXPECT_EQ(fast.count(name), 0) << name;
  }
  EXPECT_EQ(eager.count("alloc"), eager.count("free"));
  EXPECT_EQ(eager.count("argmax"), static_cast<int64_t>(eager.phases().size()));
  EXPECT_EQ(fast.count("argmax"), static_cast<int64_t>(fast.phases().size()));
}

TEST(Engine, MemoryIsCountedAtAllocation) {
  const std::vector<Request> requests = {
      {.prompt = std::vector<int32_t>(10, 1), .max_new_tokens = 4}};
  const ModelConfig& c = model()->config;
  const int64_t token_bytes = c.kv_bytes_per_token(2);
  const auto paged = engine_of(options("paged_kv", 2));
  EXPECT_EQ(paged->memory().peak_kv_bytes, 2 * 65 * token_bytes);  // 13 pages of 5 for 64 tokens
  EXPECT_EQ(paged->memory().peak_activation_bytes, 0);
  EXPECT_EQ(paged->memory().weight_bytes, model()->bytes());

  const auto eager = engine_of(options("eager", 2));
  EXPECT_EQ(eager->memory().peak_kv_bytes, 0);
  static_cast<void>(scores(*eager, requests[0].prompt));
  EXPECT_EQ(eager->memory().peak_bytes(), model()->bytes()) << "score() is not part of the cost";
  static_cast<void>(eager->generate(requests, nullptr).value());
  // 13 tokens are cached at the end; while the last buffer grows, the 12 of before exist as well.
  const int64_t buffers = 2 * c.num_layers;
  const int64_t row = token_bytes / buffers;
  EXPECT_EQ(eager->memory().peak_kv_bytes, (buffers * 13 + 12) * row);
  // Prefill: residual, gate, up and their product of 10 rows at once.
  EXPECT_EQ(eager->memory().peak_activation_bytes,
            10 * (c.hidden_size + 3 * c.intermediate_size) * 4);

  const auto arena = engine_of(options("arena", 2));
  const int64_t planned = arena->memory().peak_activation_bytes;
  EXPECT_GT(planned, 64 * (c.hidden_size + 3 * c.intermediate_size) * 4);
  static_cast<void>(arena->generate(requests, nullptr).value());
  EXPECT_EQ(arena->memory().peak_activation_bytes, planned);
}

TEST(Engine, StepCostIsTheSumOfItsParts) {
  const auto engine = engine_of(options("fast", 4));
  const ModelConfig& c = model()->config;
  const KernelCost cost = engine->decode_step_cost(3, 40);
  const int64_t token_bytes = c.kv_bytes_per_token(2);
  EXPECT_EQ(cost.bytes_read,
            model()->bytes_per_decode_step() + 3 * (c.hidden_size * 2 + 40 * token_bytes));
  EXPECT_EQ(cost.bytes_written, 3 * token_bytes);
  const int64_t q = c.num_q_heads * c.head_dim;
  const int64_t kv = c.num_kv_heads * c.head_dim;
  const int64_t layer = c.hidden_size * (2 * q + 2 * kv + 3 * c.intermediate_size);
  EXPECT_EQ(cost.flops, 3 * (2 * (c.num_layers * layer + c.vocab_size * c.hidden_size) +
                             4 * 40 * q * c.num_layers));
}

TEST(Engine, AWindowBoundsTheKeysOfADecodeStep) {
  ModelConfig config = tiny_config();
  const auto cost = [&](int64_t context) {
    return engine_of(options("fast"), random_model(config, DType::kF16, 2))
        ->decode_step_cost(2, context);
  };
  const KernelCost full = cost(10);
  config.sliding_window = 10;
  EXPECT_EQ(cost(10).bytes_read, full.bytes_read);
  EXPECT_EQ(cost(40).bytes_read, full.bytes_read);
  EXPECT_EQ(cost(40).flops, full.flops);
}

TEST(Engine, KernelChoiceNamesEveryMatrix) {
  const auto engine = engine_of(options("fast", 4));
  for (const int64_t batch : {1, 64}) {
    const std::string q4(cpu::linear_kernel_name(DType::kQ4_1, batch));
    const std::string f16(cpu::linear_kernel_name(DType::kF16, batch));
    EXPECT_EQ(engine->kernel_choice(batch), "q=" + q4 + " k=" + q4 + " v=" + q4 + " o=" + q4 +
                                                " gate=" + q4 + " up=" + q4 + " down=" + q4 +
                                                " lm_head=" + f16);
  }
  auto mixed = std::make_shared<ModelWeights>(*model());
  mixed->layers[1].down = random_model(tiny_config(), DType::kF16, 1)->layers[1].down;
  EXPECT_THAT(engine_of(options("fast"), mixed)->kernel_choice(1),
              HasSubstr("down=" + std::string(cpu::linear_kernel_name(DType::kQ4_1, 1)) + "," +
                        std::string(cpu::linear_kernel_name(DType::kF16, 1))));
}

TEST(Engine, OddRequestsLeaveNothingHalfDone) {
  for (const char* runtime : {"eager", "fast"}) {
    SCOPED_TRACE(runtime);
    const auto engine = engine_of(options(runtime, 2));
    expect_bad_requests_leave_nothing_half_done(*engine, 97);
    expect_no_requests_are_an_empty_result(*engine);
    expect_a_single_token_needs_no_decode_step(*engine);
  }
}

TEST(Engine, RefusesWhatThisBuildOrMachineCannotDo) {
  struct Case {
    void (*change)(EngineOptions&);
    ErrorCode code;
    const char* text;
  };
  const std::vector<Case> cases = {
      {[](EngineOptions& o) { o.features.set(RuntimeFeature::kGraph); }, ErrorCode::kUnsupported,
       "'graph' is not available on the CPU"},
      {[](EngineOptions& o) { o.kv = KvFormat::kF32; }, ErrorCode::kUnsupported, "16 bits"},
      {[](EngineOptions& o) { o.max_batch = 0; }, ErrorCode::kInvalidArgument, "max_batch is 0"},
      {[](EngineOptions& o) { o.max_sequence = 0; }, ErrorCode::kInvalidArgument, "max_sequence"},
      {[](EngineOptions& o) { o.page_size = 0; }, ErrorCode::kInvalidArgument, "page_size"},
      {[](EngineOptions& o) { o.prefill_chunk = 0; }, ErrorCode::kInvalidArgument, "prefill_chunk"},
      {[](EngineOptions& o) { o.kv_cache_tokens = -1; }, ErrorCode::kInvalidArgument,
       "kv_cache_tokens is -1"},
      {[](EngineOptions& o) { o.num_threads = -1; }, ErrorCode::kInvalidArgument, "num_threads"},
      {[](EngineOptions& o) { o.max_sequence = 513; }, ErrorCode::kUnsupported,
       "knows positions below 512"},
      {[](EngineOptions& o) { o.page_size = int64_t{1} << 30, o.max_batch = 1 << 16; },
       ErrorCode::kOutOfMemory, "exceed the limit of"}};
  for (const Case& c : cases) {
    EngineOptions wrong = options("fast");
    c.change(wrong);
    const auto engine = make_engine(model(), wrong);
    ASSERT_FALSE(engine) << c.text;
    EXPECT_EQ(engine.error().code, c.code) << c.text;
    EXPECT_THAT(engine.error().message, HasSubstr(c.text));
  }
}

TEST(Engine, RefusesAHeadThatTheKernelsCannotRotate) {
  auto weights = std::make_shared<ModelWeights>(*model());
  weights->config.head_dim = 1026;
  const auto engine = make_engine(weights, options("fast"));
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(engine.error().message, HasSubstr("head_dim is 1026"));
}

TEST(Engine, ZeroThreadsMeansAllCores) {
  EngineOptions all = options("fast");
  all.num_threads = 0;
  EXPECT_EQ(engine_of(all)->options().num_threads, cpu::available_cores());
}

TEST(Engine, EnginesOfSeveralThreadsTakeTurns) {
  const std::vector<Request> requests = random_requests(9, 6);
  const auto expected =
      tokens_of(engine_of(options("fast", 2))->generate(requests, nullptr).value());
  std::vector<std::unique_ptr<Engine>> engines;
  for (const char* runtime : {"fast", "eager", "fused"}) {
    EngineOptions two_threads = options(runtime, 2);
    two_threads.num_threads = 2;
    engines.push_back(engine_of(two_threads));
  }
  std::vector<std::vector<std::vector<int32_t>>> got(engines.size());
  std::vector<std::thread> callers;
  for (size_t i = 0; i < engines.size(); ++i) {
    callers.emplace_back(
        [&, i] { got[i] = tokens_of(engines[i]->generate(requests, nullptr).value()); });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& tokens : got) EXPECT_EQ(tokens, expected);
}

}  // namespace
}  // namespace triptych
