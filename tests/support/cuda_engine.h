// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Models and engines of CUDA tests, and greedy texts compared up to near ties.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "engine/engine.h"
#include "kernels/common/half.h"
#include "tests/support/random_model.h"

namespace triptych {

/// tiny_config() with sizes that the streaming kernels take.
[[nodiscard]] inline ModelConfig base_config() {
  ModelConfig config = tiny_config();
  config.hidden_size = 128;
  config.intermediate_size = 192;
  config.head_dim = 64;
  config.vocab_size = 104;
  config.max_position = 4096;
  return config;
}

/// random_model() keeps embedding and lm_head in f16.
[[nodiscard]] inline std::shared_ptr<ModelWeights> model_of(const ModelConfig& config, DType dtype,
                                                            uint64_t seed) {
  auto weights = random_model(config, dtype, seed);
  if (dtype == DType::kF16) return weights;
  for (WeightView* table : {&weights->embed, &weights->lm_head}) {
    if (table->dtype == dtype) continue;
    std::vector<std::byte> bytes(
        static_cast<size_t>(table->rows * row_bytes(dtype, table->columns)));
    std::vector<float> row(static_cast<size_t>(table->columns));
    for (int64_t r = 0; r < table->rows; ++r) {
      for (int64_t c = 0; c < table->columns; ++c) {
        row[static_cast<size_t>(c)] =
            half_to_float(reinterpret_cast<const Half*>(table->row(r))[c]);
      }
      quantize_row(row.data(), table->columns, dtype,
                   bytes.data() + r * row_bytes(dtype, table->columns));
    }
    weights->storage.push_back(std::move(bytes));
    *table = {weights->storage.back().data(), dtype, table->rows, table->columns};
  }
  if (config.tie_word_embeddings) weights->lm_head = weights->embed;
  return weights;
}

[[nodiscard]] inline EngineOptions options(std::string_view runtime, DeviceKind device,
                                           int64_t max_batch = 1) {
  EngineOptions o;
  o.features = RuntimeFeatures::parse(runtime, device).value();
  o.device = device;
  o.num_threads = 2;
  o.max_batch = max_batch;
  o.max_sequence = 400;
  o.page_size = 16;
  o.prefill_chunk = 64;
  return o;
}

[[nodiscard]] inline std::unique_ptr<Engine> engine_of(std::shared_ptr<const ModelWeights> weights,
                                                       const EngineOptions& engine_options) {
  auto engine = make_engine(std::move(weights), engine_options);
  EXPECT_TRUE(engine) << engine.error().to_string();
  return std::move(engine).value();
}

[[nodiscard]] inline std::vector<float> scores(Engine& engine, std::span<const int32_t> tokens,
                                               int64_t prefill) {
  std::vector<float> all;
  const Status status = engine.score(tokens, prefill, [&](int64_t, std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  });
  EXPECT_TRUE(status) << status.error().to_string();
  return all;
}

// Of the largest logit. Each of 3 layers rounds about ten intermediate results to f16 (2^-11 of
// themselves) or bf16 (2^-8), which add up like a random walk in the residual stream: sqrt(30) / 2
// roundings, and the logits themselves, whose errors are the larger ones of a hundred.
[[nodiscard]] inline double tolerance(DType dtype) {
  return dtype == DType::kF16 ? 10 * 0x1p-11 : 10 * 0x1p-8;
}

/// One feature each, combinations that share code, and all.
inline const std::vector<const char*> kRuntimes = {"eager",
                                                   "fused",
                                                   "arena",
                                                   "paged_kv",
                                                   "device_sampling+overlap",
                                                   "paged_kv+arena+graph",
                                                   "fused+paged_kv+arena+graph+device_sampling",
                                                   "continuous_batching+chunked_prefill",
                                                   "fast"};

[[nodiscard]] inline std::vector<Request> random_requests(RandomStream& random, int64_t count,
                                                          int64_t longest, int64_t vocab_size) {
  std::vector<Request> requests(static_cast<size_t>(count));
  for (Request& request : requests) {
    const auto length = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(longest)));
    request.prompt = random_tokens(random, length, vocab_size);
    request.max_new_tokens = 1 + static_cast<int64_t>(random.below(24));
  }
  return requests;
}

/// Greedy tokens differ from those that were expected only where the two best logits are nearly
/// equal, since products of other numbers of rows round differently. Returns whether they do.
[[nodiscard]] inline bool differ(Engine& judge, const Request& request,
                                 const std::vector<int32_t>& tokens,
                                 const std::vector<int32_t>& expected, double margin) {
  const auto [a, b] = std::mismatch(tokens.begin(), tokens.end(), expected.begin(), expected.end());
  if (a == tokens.end() || b == expected.end()) {
    EXPECT_EQ(tokens.size(), expected.size()) << "the same tokens, but not as many";
    return false;
  }
  std::vector<int32_t> text = request.prompt;
  text.insert(text.end(), tokens.begin(), a);
  const std::vector<float> logits = scores(judge, text, std::ssize(text));
  const auto row = logits.end() - std::ssize(logits) / std::ssize(text);
  EXPECT_NEAR(row[*a], row[*b], margin) << "token " << a - tokens.begin();
  return true;
}

}  // namespace triptych
