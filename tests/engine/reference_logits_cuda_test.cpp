// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The real model on a CUDA device against transformers (see reference_logits_test) and against the
// CPU engine with the same weights; where it is not there, a generated one against the CPU engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/synthetic.h"
#include "engine/tokenizer.h"
#include "tests/support/cuda_engine.h"
#include "tests/support/gpu_test.h"
#include "tests/support/model_path.h"
#include "tests/support/smollm_cases.h"

namespace triptych {
namespace {

/// Weights and a text to read.
struct Model {
  std::string name;
  std::shared_ptr<const ModelWeights> weights;
  std::vector<int32_t> text;
};

constexpr size_t kTextTokens = 512;

Model real_model(WeightScheme scheme) {
  const auto checkpoint = open_checkpoint({.path = model_path()}).value();
  std::ifstream file(std::string(TRIPTYCH_SOURCE_DIR) + "/tests/data/coriolanus.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<int32_t> tokens = checkpoint->tokenizer()->encode(text);
  tokens.resize(kTextTokens);
  return {"SmolLM2-135M", load_weights(checkpoint, scheme).value(), tokens};
}

/// The real one's shape with fewer layers and tokens.
Model generated_model(WeightScheme scheme) {
  ModelConfig config = base_config();
  config.hidden_size = 576;
  config.intermediate_size = 1536;
  config.num_layers = 8;
  config.num_q_heads = 9;
  config.num_kv_heads = 3;
  config.vocab_size = 2048;
  config.tie_word_embeddings = true;
  RandomStream random(3);
  return {"generated", load_weights(make_synthetic(config, "generated", 3).value(), scheme).value(),
          random_tokens(random, kTextTokens, config.vocab_size)};
}

DType dtype_of(WeightScheme scheme) {
  return scheme == WeightScheme::kF16 ? DType::kF16 : DType::kBF16;
}

// tolerance() is for 3 layers; roundings add up like a random walk.
double logit_tolerance(WeightScheme scheme, const ModelConfig& config, double largest_logit) {
  return std::sqrt(static_cast<double>(config.num_layers) / 3) * largest_logit *
         tolerance(dtype_of(scheme));
}

std::unique_ptr<Engine> engine_on(DeviceKind device, const Model& model, const char* runtime) {
  EngineOptions o = options(runtime, device);
  o.max_sequence = static_cast<int64_t>(kTextTokens);
  o.num_threads = 0;
  return engine_of(model.weights, o);
}

class ReferenceLogitsCuda : public GpuTest, public testing::WithParamInterface<WeightScheme> {
 protected:
  static bool has_model() { return std::filesystem::exists(model_path()); }
};

TEST_P(ReferenceLogitsCuda, TheRealModelIsTransformers) {
  TRIPTYCH_SKIP_WITHOUT_MODEL();
  constexpr double kLargestLogit = 30;
  const Model model = real_model(GetParam());
  // The weights are rounded as well, which gives every product an error like that of its input.
  const double allowed = 1.5 * logit_tolerance(GetParam(), model.weights->config, kLargestLogit);
  for (const char* runtime : {"eager", "fast"}) {
    const auto engine = engine_on(DeviceKind::kCuda, model, runtime);
    const ReferenceError error = smollm_error(*engine, allowed);
    EXPECT_EQ(error.steps, 650);
    EXPECT_LT(error.worst, allowed);
    const GreedyMatch match = smollm_greedy(*engine, allowed);
    std::printf(
        "%s %s: max error %.5f, allowed %.5f, %d of %d choices differ; %d tokens compared, "
        "%d sequences left at a near tie\n",
        weight_scheme_name(GetParam()).data(), runtime, error.worst, allowed, error.disagreeing,
        error.steps, match.compared, match.ties);
  }
}

/// Negative log-likelihood of each token but the first, and the largest logit.
struct Likelihood {
  std::vector<double> nll;
  double largest_logit = 0;
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double value : nll) sum += value;
    return sum / static_cast<double>(nll.size());
  }
};

Likelihood likelihood(Engine& engine, const std::vector<int32_t>& text) {
  Likelihood result;
  const auto visit = [&](int64_t position, std::span<const float> logits) {
    if (position + 1 == std::ssize(text)) return;
    const auto next = static_cast<size_t>(text[static_cast<size_t>(position + 1)]);
    result.nll.push_back(log_sum_exp(logits) - static_cast<double>(logits[next]));
    for (const float logit : logits) {
      result.largest_logit = std::max(result.largest_logit, std::abs(static_cast<double>(logit)));
    }
  };
  const Status status = engine.score(text, std::ssize(text) - 64, visit);
  EXPECT_TRUE(status) << status.error().to_string();
  return result;
}

TEST_P(ReferenceLogitsCuda, PerplexityAndGreedyTokensAreTheCpuEngines) {
  const Model model = has_model() ? real_model(GetParam()) : generated_model(GetParam());
  const auto cpu = engine_on(DeviceKind::kCpu, model, "fast");
  const Likelihood expected = likelihood(*cpu, model.text);
  const double allowed = logit_tolerance(GetParam(), model.weights->config, expected.largest_logit);
  // A token's likelihood is off by twice what a logit may be off by. Errors have no bias, so that
  // their mean shrinks with the root of the tokens; three standard deviations.
  const double allowed_mean = 3 * 2 * allowed / std::sqrt(static_cast<double>(expected.nll.size()));
  const Request request{std::vector<int32_t>(model.text.begin(), model.text.begin() + 40), 64};
  const auto tokens = cpu->generate({&request, 1}, nullptr).value().requests[0].tokens;
  for (const char* runtime : {"eager", "fast"}) {
    const auto cuda = engine_on(DeviceKind::kCuda, model, runtime);
    const Likelihood found = likelihood(*cuda, model.text);
    ASSERT_EQ(found.nll.size(), expected.nll.size());
    for (size_t i = 0; i < found.nll.size(); ++i) {
      ASSERT_NEAR(found.nll[i], expected.nll[i], 2 * allowed) << runtime << " token " << i;
    }
    EXPECT_NEAR(found.mean(), expected.mean(), allowed_mean) << runtime;
    const auto chosen = cuda->generate({&request, 1}, nullptr).value().requests[0].tokens;
    const bool tie = differ(*cpu, request, chosen, tokens, 2 * allowed);
    std::printf("%s %s %s: perplexity %.4f, on the CPU %.4f; 64 tokens %s\n", model.name.c_str(),
                weight_scheme_name(GetParam()).data(), runtime, std::exp(found.mean()),
                std::exp(expected.mean()), tie ? "equal up to a near tie" : "equal");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ReferenceLogitsCuda,
                         testing::Values(WeightScheme::kF16, WeightScheme::kBF16),
                         [](const auto& test) {
                           return std::string(weight_scheme_name(test.param));
                         });

}  // namespace
}  // namespace triptych
