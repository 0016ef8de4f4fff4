// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What goes wrong on a CUDA device: odd requests, no memory, a lost context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/support/engine_cases.h"
#include "tests/support/gpu_test.h"
#include "tests/support/lose_device.h"
#include "tests/support/random_model.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const ModelWeights> model() {
  ModelConfig config = tiny_config();
  config.hidden_size = 128;
  config.intermediate_size = 192;
  config.head_dim = 64;
  config.max_position = 1 << 20;
  return random_model(config, DType::kF16, 11);
}

EngineOptions options(std::string_view runtime, int64_t max_batch = 2) {
  EngineOptions o;
  o.device = DeviceKind::kCuda;
  o.features = RuntimeFeatures::parse(runtime, o.device).value();
  o.num_threads = 2;
  o.max_batch = max_batch;
  o.max_sequence = kCaseSequence;
  return o;
}

std::unique_ptr<Engine> engine_of(const EngineOptions& engine_options,
                                  std::shared_ptr<const ModelWeights> weights) {
  auto engine = make_engine(std::move(weights), engine_options);
  EXPECT_TRUE(engine) << engine.error().to_string();
  return std::move(engine).value();
}

class EngineFaultsCuda : public GpuTest {};

TEST_F(EngineFaultsCuda, OddRequestsLeaveNothingHalfDone) {
  const auto weights = model();
  for (const char* runtime : {"eager", "fast"}) {
    SCOPED_TRACE(runtime);
    const auto engine = engine_of(options(runtime), weights);
    expect_bad_requests_leave_nothing_half_done(*engine,
                                                static_cast<int32_t>(weights->config.vocab_size));
    expect_no_requests_are_an_empty_result(*engine);
    expect_a_single_token_needs_no_decode_step(*engine);
  }
}

TEST_F(EngineFaultsCuda, StopsAfterDeliveringEos) {
  const auto weights = model();
  for (const char* runtime : {"eager", "fast"}) {
    SCOPED_TRACE(runtime);
    expect_a_stop_token_is_the_last_one(
        [&](auto stopping) { return engine_of(options(runtime), std::move(stopping)); }, *weights);
  }
}

/// All of the device's memory but `left` bytes, as another process would hold it.
DeviceBuffer<std::byte> hold_all_but(size_t left) {
  size_t free = 0;
  size_t total = 0;
  TRIPTYCH_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  constexpr size_t kPiece = size_t{32} << 20;  // what is free need not be one block
  for (size_t bytes = free - std::min(free, left);; bytes -= kPiece) {
    try {
      return DeviceBuffer<std::byte>(bytes);
    } catch (const DeviceError& error) {
      if (!error.out_of_memory() || bytes < free / 2) throw;
    }
  }
}

void expect_out_of_memory(const Error& error) {
  EXPECT_EQ(error.code, ErrorCode::kOutOfMemory);
  for (const char* part : {"out of memory: ", " MiB asked for, ", " MiB are free",
                           "; the engine needs weights ", " + KV cache ", " + activations "}) {
    EXPECT_THAT(error.message, HasSubstr(part));
  }
}

TEST_F(EngineFaultsCuda, APoolThatDoesNotFitBesideOtherProcessesIsRefusedWithTheNumbers) {
  const auto weights = model();
  EngineOptions large = options("fast");
  large.max_sequence = 1 << 20;
  {
    const auto held = hold_all_but(size_t{256} << 20);
    const auto engine = make_engine(weights, large);  // its pages need more than 1 GiB
    ASSERT_FALSE(engine);
    expect_out_of_memory(engine.error());
    const Request request{.prompt = {1, 2}, .max_new_tokens = 3};
    EXPECT_TRUE(engine_of(options("fast"), weights)->generate({&request, 1}, nullptr))
        << "what fits goes on";
  }
  EXPECT_TRUE(make_engine(weights, large)) << "the device is as it was";
}

TEST_F(EngineFaultsCuda, AStepThatFindsNoMemoryEndsItsRequestsOnly) {
  EngineOptions eager = options("eager", 1);
  constexpr int64_t kRows = 1 << 18;
  eager.max_sequence = kRows;
  const auto engine = engine_of(eager, model());
  const Request small{.prompt = {1, 2}, .max_new_tokens = 3};
  const Request large{.prompt = std::vector<int32_t>(kRows - 8, 1), .max_new_tokens = 2};
  const auto expected = engine->generate({&small, 1}, nullptr);
  ASSERT_TRUE(expected);
  {
    // The residual, its norm and q of all rows need 256 MiB, and nothing of that size was allocated
    // before.
    const auto held = hold_all_but(size_t{128} << 20);
    const auto result = engine->generate({&large, 1}, nullptr);
    ASSERT_FALSE(result);
    expect_out_of_memory(result.error());
  }
  const auto again = engine->generate({&small, 1}, nullptr);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->requests[0].tokens, expected->requests[0].tokens);
}

TEST_F(EngineFaultsCuda, AMemoryLimitNamesWhatIsFree) {
  EngineOptions limited = options("fast");
  limited.memory_limit_bytes = 1 << 16;
  const auto engine = make_engine(model(), limited);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message, HasSubstr("exceed the limit of 64.0 KiB; "));
  EXPECT_THAT(engine.error().message, HasSubstr(" of the device's "));
}

/// Exits with 0 if everything after the loss says so.
[[noreturn]] void lose_and_look() {
  const auto weights = model();
  const auto engine = make_engine(weights, options("fast"));
  const Request request{.prompt = {1, 2}, .max_new_tokens = 3};
  const bool well = engine && (*engine)->generate({&request, 1}, nullptr).has_value();
  lose_device();
  const auto lost = [](const Error& error) {
    return error.code == ErrorCode::kDeviceLost &&
           error.message.find("illegal memory access") != std::string::npos;
  };
  const auto result = (*engine)->generate({&request, 1}, nullptr);
  const auto again = make_engine(weights, options("eager"));
  const auto fresh = make_engine(model(), options("eager"));
  const bool told = !result && lost(result.error()) && !again && lost(again.error()) && !fresh &&
                    lost(fresh.error());
  if (!told) {
    std::fprintf(stderr, "%s\n%s\n%s\n", result ? "ran" : result.error().to_string().c_str(),
                 again ? "made" : again.error().to_string().c_str(),
                 fresh ? "made" : fresh.error().to_string().c_str());
  }
  std::exit(well && told ? 0 : 1);
}

TEST_F(EngineFaultsCuda, ALostDeviceIsSaidToBeLostAndAFreshProcessWorks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child is a process of its own
  EXPECT_EXIT(lose_and_look(), ::testing::ExitedWithCode(0), "");
  const Request request{.prompt = {1, 2}, .max_new_tokens = 3};
  EXPECT_TRUE(engine_of(options("fast"), model())->generate({&request, 1}, nullptr));
}

}  // namespace
}  // namespace triptych
