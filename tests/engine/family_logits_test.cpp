// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Small random models of every family against transformers in float32, made by
// tests/reference/families.py: every position of a prefill and of 16 decode steps; greedy tokens of
// larger ones.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>

#include "tests/support/family_cases.h"

namespace triptych {
namespace {

// Largest |logit - reference| allowed; logits reach about 4. The weights are the same numbers, so
// what differs is keys and values rounded to f16 (relative 2^-11 each) in at most 3 layers, and f32
// sums in another order. Each rounding moves the residual stream by about 2^-12 of an attention
// output of order one, a few of them add up. Measured: below 2e-3.
constexpr double kTolerance = 3e-3;

std::unique_ptr<Engine> engine_of(const Json& golden, const ModelConfig& config,
                                  const char* runtime) {
  EngineOptions options;
  options.features = RuntimeFeatures::parse(runtime, DeviceKind::kCpu).value();
  options.max_sequence = 96;
  options.page_size = 4;  // so that short windows leave whole pages
  return make_engine(family_weights(golden, config, WeightScheme::kF32), options).value();
}

class FamilyLogits : public testing::TestWithParam<size_t> {
 protected:
  const Json& golden() const { return family_cases().at(GetParam()); }
};

TEST_P(FamilyLogits, PrefillAndDecodeMatchTransformers) {
  for (const char* runtime : {"eager", "fast"}) {
    const double error =
        family_logit_error(golden(), *engine_of(golden(), family_config(golden()), runtime));
    EXPECT_LT(error, kTolerance) << runtime;
    std::printf("%s: max error %.5f\n", runtime, error);
  }
}

void expect_greedy_tokens(const Json& golden) {
  for (const char* runtime : {"eager", "fast"}) {
    const auto engine = engine_of(golden, family_config(golden), runtime);
    const size_t equal = greedy_tokens_equal(golden, *engine, kTolerance);
    const size_t all = golden.at("tokens").size();
    std::printf("%s: %zu of %zu tokens equal%s\n", runtime, equal, all,
                equal < all ? ", then a near tie" : "");
  }
}

TEST_P(FamilyLogits, GreedyTokensAreTheReferences) { expect_greedy_tokens(golden()); }

// The comparison above sees each of the things in which families differ.
TEST_P(FamilyLogits, NothingThatTheConfigAsksForCanBeLeftOut) {
  for (const FamilyMutation& mutation : family_mutations(family_config(golden()))) {
    ModelConfig config = family_config(golden());
    mutation.apply(config);
    EXPECT_GT(family_logit_error(golden(), *engine_of(golden(), config, "fast")), 10 * kTolerance)
        << mutation.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, FamilyLogits, testing::Range<size_t>(0, family_cases().size()),
                         family_case_name);

class LongFamilyTokens : public testing::TestWithParam<size_t> {};

TEST_P(LongFamilyTokens, GreedyTokensAreTheReferences) {
  const Json& golden = long_family_cases().at(GetParam());
  expect_greedy_tokens(golden);
  const auto engine = engine_of(golden, family_config(golden), "fast");
  std::printf("%lld of %zu choices are near ties decided differently\n",
              static_cast<long long>(other_choices(golden, *engine, kTolerance)),
              golden.at("tokens").size());
}

INSTANTIATE_TEST_SUITE_P(Cases, LongFamilyTokens,
                         testing::Range<size_t>(0, long_family_cases().size()),
                         long_family_case_name);

TEST(FamilyCases, EveryFamilyIsThere) {
  for (const Json* cases : {&family_cases(), &long_family_cases()}) {
    std::set<std::string> families;
    for (const Json& golden : *cases) families.insert(family_config(golden).architecture);
    EXPECT_EQ(families, (std::set<std::string>{"llama", "mistral", "qwen2", "qwen3"}));
  }
}

}  // namespace
}  // namespace triptych
