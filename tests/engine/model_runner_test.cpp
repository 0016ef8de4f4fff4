// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/support/random_model.h"

namespace triptych {
namespace {

EngineOptions options(std::string_view runtime) {
  return {.features = RuntimeFeatures::parse(runtime, DeviceKind::kCpu).value(),
          .num_threads = 1,
          .max_batch = 3,
          .max_sequence = 32,
          .page_size = 4};
}

/// Three sequences of 3, 1 and 4 tokens in one step.
struct MixedStep {
  std::vector<int32_t> tokens = {5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<int32_t> positions = {0, 1, 2, 0, 0, 1, 2, 3};
  std::vector<StepSequence> sequences = {{0, 0, 3}, {1, 0, 1}, {2, 0, 4}};
  [[nodiscard]] Step step(std::span<const SampledRow> sampled = {}) const {
    return {tokens, positions, sequences, sampled};
  }
};

TEST(ModelRunner, ChoosesAfterAnyRowsOfAStep) {
  const MixedStep mixed;
  for (const char* runtime : {"eager", "fast"}) {
    cpu::ThreadPool pool(1);
    ModelRunner runner(random_model(tiny_config(), DType::kF32, 3), options(runtime), pool);
    std::vector<int32_t> best(mixed.tokens.size());
    runner.score(mixed.step(), [&](int64_t row, std::span<const float> logits) {
      best[row] =
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    });
    const std::vector<std::vector<int64_t>> choices = {{}, {7}, {2, 3}, {2, 3, 7}, {0, 4}};
    for (const std::vector<int64_t>& rows : choices) {
      for (int64_t slot = 0; slot < 3; ++slot) runner.clear(slot);
      std::vector<int32_t> chosen(rows.size());
      std::vector<SampledRow> sampled;
      for (const int64_t row : rows) sampled.push_back({row, 0, {}});
      runner.launch(mixed.step(sampled));
      if (!rows.empty()) runner.fetch(chosen);
      for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(chosen[i], best[rows[i]]) << runtime;
    }
  }
}

TEST(ModelRunner, FewSizesOfGraphsServeEveryStep) {
  for (const int64_t most : {1, 5, 100, 300}) {
    std::set<int64_t> sizes;
    for (int64_t batch = 1; batch <= most; ++batch) {
      const int64_t padded = padded_batch(batch, most);
      EXPECT_GE(padded, batch);
      EXPECT_LE(padded, most);
      EXPECT_LT(padded, std::max<int64_t>(batch + 16, 2 * batch)) << "more padding than work";
      sizes.insert(padded);
    }
    EXPECT_LE(sizes.size(), 24U);
  }
  EXPECT_EQ(kv_bucket(1, 4096), 512);
  EXPECT_EQ(kv_bucket(513, 4096), 1024);
  EXPECT_EQ(kv_bucket(3000, 3100), 3100);
  EXPECT_EQ(kv_bucket(40, 100), 100);
}

TEST(ModelRunner, SizesBoundWhatIsTaken) {
  const auto weights = random_model(tiny_config(), DType::kF32, 3);
  for (const char* runtime : {"fast", "paged_kv+arena", "arena"}) {
    for (const int64_t budget : {0, 20}) {
      EngineOptions limited = options(runtime);
      limited.kv_cache_tokens = budget;
      cpu::ThreadPool pool(1);
      const ModelRunner runner(weights, limited, pool);
      const ModelRunner::Sizes sizes = ModelRunner::sizes(*weights, limited);
      EXPECT_LE(static_cast<double>(runner.peak_kv_bytes()), sizes.kv_bytes) << runtime;
      EXPECT_LE(static_cast<double>(runner.peak_activation_bytes()), sizes.activation_bytes)
          << runtime;
      EXPECT_GE(static_cast<double>(runner.peak_activation_bytes()) * 1.5, sizes.activation_bytes)
          << runtime << ": the estimate is no use if it is far off";
    }
  }
}

}  // namespace
}  // namespace triptych
