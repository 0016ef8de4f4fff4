// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a prompt pool, then the requests of a workload. Each has the length asked for.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/model_config.h"
#include "experiments/prompt_pool.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triptych;
  const auto pool = parse_prompt_pool({reinterpret_cast<const char*>(data), size}, "prompts.jsonl");
  if (!pool) return 0;
  TRIPTYCH_CHECK(!pool->prompts.empty(), "a pool without prompts");
  for (const Prompt& prompt : pool->prompts) {
    TRIPTYCH_CHECK(prompt.text.empty() != prompt.token_ids.empty(), "text and tokens, or neither");
  }
  static const auto config = synthetic_config("llama-tiny");
  WorkloadSpec workload;
  workload.prompt_tokens = 40;
  workload.output_tokens = 2;
  workload.requests = 3;
  const auto built = build_requests(*pool, nullptr, *config, workload);
  if (!built) return 0;
  for (const Request& request : built->requests) {
    TRIPTYCH_CHECK(std::ssize(request.prompt) == workload.prompt_tokens, "another length");
    for (const int32_t id : request.prompt) {
      TRIPTYCH_CHECK(id >= 0 && id < config->vocab_size, "a token outside the vocabulary");
    }
  }
  return 0;
}
