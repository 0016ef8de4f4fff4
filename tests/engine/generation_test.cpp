// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The loop itself: order, ends and clients. What it computes is tested through Engine.
#include "engine/generation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/random_model.h"

namespace triptych {
namespace {

EngineOptions options(std::string_view runtime, int64_t max_batch) {
  return {.features = RuntimeFeatures::parse(runtime, DeviceKind::kCpu).value(),
          .num_threads = 1,
          .max_batch = max_batch,
          .max_sequence = 64,
          .page_size = 4};
}

class Loop {
 public:
  Loop(std::string_view runtime, int64_t max_batch)
      : options_(options(runtime, max_batch)),
        executor_({random_model(tiny_config(), DType::kF32, 5)}, options_) {}

  GenerateResult run(std::span<const Request> requests, std::optional<int32_t> eos = std::nullopt) {
    return run_generation(executor_, options_, requests, eos, nullptr);
  }

 private:
  EngineOptions options_;
  Executor executor_;
};

TEST(Generation, AStopTokenFirstEndsAfterOneToken) {
  const Request request{.prompt = {3, 1, 4}, .max_new_tokens = 9, .ignore_eos = false};
  for (const char* runtime : {"eager", "fast"}) {
    Loop loop(runtime, 2);
    const int32_t first = loop.run({&request, 1}).requests[0].tokens[0];
    const GenerateResult stopped = loop.run({&request, 1}, first);
    EXPECT_EQ(stopped.requests[0].tokens, std::vector<int32_t>{first});
    EXPECT_EQ(stopped.requests[0].token_ns.size(), 1U);
    EXPECT_EQ(stopped.decode_steps, 0);
    EXPECT_EQ(stopped.prefill_steps, 1);
    EXPECT_FALSE(stopped.device_wait_ns || stopped.decode_host_ns || stopped.prefill_host_ns)
        << "the host is the device";
  }
}

TEST(Generation, AClientSubmitsWhenItsLastRequestHasFinished) {
  const std::vector<Request> requests(7, Request{.prompt = {1, 2}, .max_new_tokens = 3});
  for (const char* runtime : {"eager", "fast"}) {
    const GenerateResult result = Loop(runtime, 3).run(requests);
    std::vector<int64_t> ends;
    for (const RequestResult& r : result.requests) ends.push_back(r.token_ns.back());
    std::sort(ends.begin(), ends.end());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(result.requests[i].submit_ns, i < 3 ? result.start_ns : ends[i - 3]);
    }
  }
}

TEST(Generation, ArrivalsAndClientsShareOneQueue) {
  std::vector<Request> requests(4, Request{.prompt = {1, 2}, .max_new_tokens = 4});
  requests[1].arrival_ns = 0;
  requests[3].arrival_ns = 3000000;
  const GenerateResult result = Loop("fast", 1).run(requests);
  EXPECT_EQ(result.requests[1].submit_ns, result.start_ns);
  EXPECT_EQ(result.requests[3].submit_ns, result.start_ns + 3000000);
  EXPECT_EQ(result.requests[2].submit_ns, result.requests[0].token_ns.back());
  EXPECT_GT(result.requests[1].admit_ns, result.requests[0].token_ns.back())
      << "one slot: the arrival waits for the client that came first";
}

}  // namespace
}  // namespace triptych
