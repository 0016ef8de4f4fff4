// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The CUDA engine in f16 and bf16 against transformers in float32: the cases of family_logits_test,
// with the largest error that the element type explains.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "tests/support/cuda_engine.h"
#include "tests/support/family_cases.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

constexpr WeightScheme kSchemes[] = {WeightScheme::kF16, WeightScheme::kBF16};

// Largest |logit - reference| allowed; logits reach 5. tolerance() is for 3 layers whose weights
// are exact, as they are in f16 here; roundings add up like a random walk. Half of it: these cases
// have 39 positions, that bound is for several hundred. bf16 weights are off by up to 2^-9 of
// themselves, which gives every product an error like that of its rounded input: sqrt(2) of what
// the activations alone would do.
double family_tolerance(WeightScheme scheme, const ModelConfig& config) {
  constexpr double kLargestLogit = 5;
  const double layers = std::sqrt(static_cast<double>(config.num_layers) / 3);
  const double half = 0.5 * layers * kLargestLogit;
  return scheme == WeightScheme::kF16 ? half * tolerance(DType::kF16)
                                      : std::sqrt(2.0) * half * tolerance(DType::kBF16);
}

std::unique_ptr<Engine> cuda_engine(const Json& golden, const ModelConfig& config,
                                    WeightScheme scheme, const char* runtime) {
  EngineOptions o = options(runtime, DeviceKind::kCuda);
  o.max_sequence = 96;
  o.page_size = 8;  // so that short windows leave whole pages
  return engine_of(family_weights(golden, config, scheme), o);
}

/// Parameters are indices of cases.
class FamilyLogitsCuda : public GpuTest, public testing::WithParamInterface<size_t> {
 protected:
  const Json& golden() const { return family_cases().at(GetParam()); }
};

TEST_P(FamilyLogitsCuda, PrefillAndDecodeMatchTransformers) {
  const ModelConfig config = family_config(golden());
  for (const WeightScheme scheme : kSchemes) {
    const double allowed = family_tolerance(scheme, config);
    for (const char* runtime : {"eager", "fast"}) {
      const auto engine = cuda_engine(golden(), config, scheme, runtime);
      const double error = family_logit_error(golden(), *engine);
      EXPECT_LT(error, allowed) << runtime << " " << weight_scheme_name(scheme);
      std::printf("%s %s: max error %.5f, allowed %.5f\n", weight_scheme_name(scheme).data(),
                  runtime, error, allowed);
    }
  }
}

void expect_greedy_tokens(const Json& golden) {
  const ModelConfig config = family_config(golden);
  for (const WeightScheme scheme : kSchemes) {
    const double allowed = family_tolerance(scheme, config);
    for (const char* runtime : {"eager", "fast"}) {
      SCOPED_TRACE(std::string(runtime) + " " + std::string(weight_scheme_name(scheme)));
      const auto engine = cuda_engine(golden, config, scheme, runtime);
      const size_t equal = greedy_tokens_equal(golden, *engine, allowed);
      const int64_t other = other_choices(golden, *engine, allowed);
      std::printf("%s %s: %zu of %zu tokens equal before a near tie, %lld choices differ\n",
                  weight_scheme_name(scheme).data(), runtime, equal, golden.at("tokens").size(),
                  static_cast<long long>(other));
    }
  }
}

TEST_P(FamilyLogitsCuda, GreedyTokensAreTheReferences) { expect_greedy_tokens(golden()); }

// f16 is close enough to the reference to see each of the things in which families differ.
TEST_P(FamilyLogitsCuda, NothingThatTheConfigAsksForCanBeLeftOut) {
  const ModelConfig config = family_config(golden());
  const double allowed = family_tolerance(WeightScheme::kF16, config);
  for (const FamilyMutation& mutation : family_mutations(config)) {
    ModelConfig changed = config;
    mutation.apply(changed);
    const auto engine = cuda_engine(golden(), changed, WeightScheme::kF16, "fast");
    EXPECT_GT(family_logit_error(golden(), *engine), allowed) << mutation.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, FamilyLogitsCuda, testing::Range<size_t>(0, family_cases().size()),
                         family_case_name);

class LongFamilyTokensCuda : public GpuTest, public testing::WithParamInterface<size_t> {};

TEST_P(LongFamilyTokensCuda, GreedyTokensAreTheReferences) {
  expect_greedy_tokens(long_family_cases().at(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Cases, LongFamilyTokensCuda,
                         testing::Range<size_t>(0, long_family_cases().size()),
                         long_family_case_name);

}  // namespace
}  // namespace triptych
