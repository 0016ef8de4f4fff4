// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "engine/checkpoint.h"
#include "engine/model_tensors.h"
#include "engine/synthetic.h"
#include "kernels/common/half.h"

namespace triptych {
namespace {

std::shared_ptr<const Checkpoint> open(const ModelRef& ref) {
  const auto checkpoint = open_synthetic(ref);
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().to_string();
    return nullptr;
  }
  return *checkpoint;
}

std::vector<float> values(const Checkpoint& checkpoint, std::string_view name) {
  const auto view = checkpoint.tensor(name);
  EXPECT_TRUE(view.has_value()) << name;
  EXPECT_EQ(view->dtype, DType::kF16);
  const auto* halves = reinterpret_cast<const Half*>(view->data);
  std::vector<float> floats(static_cast<size_t>(view->rows * view->columns));
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = half_to_float(halves[i]);
  return floats;
}

struct Moments {
  double mean = 0;
  double sigma = 0;
};
Moments moments(const std::vector<float>& numbers) {
  double sum = 0;
  double squares = 0;
  for (const float number : numbers) {
    sum += number;
    squares += static_cast<double>(number) * number;
  }
  const auto n = static_cast<double>(numbers.size());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n)};
}

TEST(Synthetic, HasEveryTensorOfItsShape) {
  const auto checkpoint = open({.synthetic = "llama-tiny"});
  EXPECT_EQ(checkpoint->origin(), "synthetic:llama-tiny");
  EXPECT_EQ(checkpoint->tokenizer(), nullptr);
  const Status status =
      for_each_tensor(checkpoint->config(), [&](const TensorSpec& spec) -> Status {
        TRIPTYCH_TRY(const auto view, checkpoint->tensor(spec.name));
        EXPECT_EQ(view.rows, spec.rows) << spec.name;
        EXPECT_EQ(view.columns, spec.columns) << spec.name;
        return {};
      });
  EXPECT_TRUE(status.has_value());
  EXPECT_EQ(checkpoint->tensor("layers.2.q").error().code, ErrorCode::kNotFound);
}

TEST(Synthetic, DependsOnSeedAndNameOnly) {
  const ModelRef ref{.synthetic = "llama-tiny", .seed = 7};
  const auto a = open(ref);
  const auto b = open(ref);
  EXPECT_EQ(values(*b, "layers.1.up"), values(*a, "layers.1.up"));
  EXPECT_NE(values(*a, "layers.0.up"), values(*a, "layers.1.up"));
  EXPECT_NE(values(*a, "layers.0.up"), values(*a, "layers.0.gate"));
  const auto other = open({.synthetic = "llama-tiny", .seed = 8});
  EXPECT_NE(values(*a, "layers.0.up"), values(*other, "layers.0.up"));
  EXPECT_EQ(a->hash(), b->hash());
  EXPECT_NE(a->hash(), other->hash());
}

TEST(Synthetic, TheNumbersDoNotChangeBetweenVersions) {
  // Results of different weights must not be compared: a change here needs a new kGeneration.
  const auto checkpoint = open({.synthetic = "llama-tiny", .seed = 1});
  const auto* q = reinterpret_cast<const Half*>(checkpoint->tensor("layers.0.q")->data);
  const uint16_t expected[] = {0x2933, 0xA93D, 0x21D0, 0x2E9F};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(q[i].bits, expected[i]) << i;
}

TEST(Synthetic, ScalesKeepActivationsNearOne) {
  const auto checkpoint = open({.synthetic = "llama-tiny"});
  const auto expect = [&](const char* name, double mean, double sigma) {
    const std::vector<float> numbers = values(*checkpoint, name);
    const Moments found = moments(numbers);
    // Five standard errors of the mean and of sigma.
    const double error = 5.0 * sigma / std::sqrt(static_cast<double>(numbers.size()));
    EXPECT_NEAR(found.mean, mean, error) << name;
    EXPECT_NEAR(found.sigma, sigma, error) << name;
  };
  expect("embed", 0.0, 1.0);
  expect("lm_head", 0.0, 1.0 / 8);
  expect("layers.0.q", 0.0, 1.0 / 8);
  expect("layers.0.o", 0.0, 1.0 / 8 / 2);  // two layers
  expect("layers.0.down", 0.0, 1.0 / std::sqrt(192.0) / 2);
  expect("layers.0.attn_norm", 1.0, 0.1);
  const auto tied = open({.synthetic = "smollm2-135m", .layers = 1});
  EXPECT_NEAR(moments(values(*tied, "layers.0.k")).sigma, 1.0 / 24, 1e-3);
}

TEST(Synthetic, WhatFamiliesAddIsNotNeutral) {
  const auto qwen2 = open({.synthetic = "qwen2-tiny"});
  const Moments bias = moments(values(*qwen2, "layers.0.q_bias"));
  // Five standard errors with 64 numbers.
  EXPECT_NEAR(bias.mean, 0.0, 0.32);
  EXPECT_NEAR(bias.sigma, 0.5, 0.32);
  const auto qwen3 = open({.synthetic = "qwen3-tiny"});
  const Moments norm = moments(values(*qwen3, "layers.1.k_norm"));
  EXPECT_NEAR(norm.mean, 1.0, 0.23);
  EXPECT_GT(norm.sigma, 0.1);
}

TEST(Synthetic, AnyPartOfATensorCanBeMadeAlone) {
  const auto checkpoint = open({.synthetic = "llama-tiny", .seed = 7});
  const std::vector<float> whole = values(*checkpoint, "layers.1.up");
  const TensorSpec spec{"layers.1.up", 192, 64};
  std::vector<Half> part(5000);
  synthetic_values(checkpoint->config(), 7, spec, 4097, part);
  for (size_t i = 0; i < part.size(); ++i) {
    ASSERT_EQ(half_to_float(part[i]), whole[4097 + i]) << i;
  }
}

TEST(Synthetic, LayersCanBeOverridden) {
  const auto checkpoint = open({.synthetic = "llama-3.1-8b", .layers = 3});
  EXPECT_EQ(checkpoint->config().num_layers, 3);
  EXPECT_NE(checkpoint->hash(), open({.synthetic = "llama-3.1-8b"})->hash());
  for (const int64_t layers : {int64_t{-1}, int64_t{1} << 40}) {
    const auto wrong = open_synthetic({.synthetic = "llama-tiny", .layers = layers});
    ASSERT_FALSE(wrong.has_value());
    EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(open_synthetic({.synthetic = "llama"}).error().code, ErrorCode::kNotFound);
}

TEST(Synthetic, ATensorIsMadeOnceWhoeverAsks) {
  const auto checkpoint = open({.synthetic = "llama-tiny"});
  std::vector<const std::byte*> seen(8);
  std::vector<std::thread> threads;
  for (auto& data : seen) {
    threads.emplace_back([&] { data = checkpoint->tensor("embed")->data; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen, std::vector<const std::byte*>(8, checkpoint->tensor("embed")->data));
}

}  // namespace
}  // namespace triptych
