// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace triptych {
namespace {

using ::testing::HasSubstr;

TEST(RuntimeFeatures, EveryCombinationSurvivesText) {
  for (uint32_t bits = 0; bits < 1u << kRuntimeFeatureNames.size(); ++bits) {
    RuntimeFeatures features;
    for (size_t i = 0; i < kRuntimeFeatureNames.size(); ++i) {
      if ((bits >> i & 1) != 0) features.set(static_cast<RuntimeFeature>(i));
    }
    using enum RuntimeFeature;
    if (features.has(kGraph) && !(features.has(kPagedKv) && features.has(kArena))) continue;
    if (features.has(kOverlap) && !features.has(kDeviceSampling)) continue;
    const auto parsed = RuntimeFeatures::parse(features.to_string(), DeviceKind::kCuda);
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    EXPECT_EQ(*parsed, features) << features.to_string();
  }
}

TEST(RuntimeFeatures, NamesAreInTheOrderOfTheEnum) {
  const auto features = RuntimeFeatures::parse(" arena + fused", DeviceKind::kCpu);
  ASSERT_TRUE(features);
  EXPECT_EQ(features->to_string(), "fused+arena");
  EXPECT_TRUE(features->has(RuntimeFeature::kFused));
  EXPECT_TRUE(features->has(RuntimeFeature::kArena));
  EXPECT_FALSE(features->has(RuntimeFeature::kPagedKv));
}

TEST(RuntimeFeatures, EagerHasNoneAndFastHasAllOfTheDevice) {
  EXPECT_EQ(RuntimeFeatures::eager().to_string(), "eager");
  EXPECT_EQ(RuntimeFeatures::fast(DeviceKind::kCpu).to_string(),
            "fused+paged_kv+continuous_batching+device_sampling+arena+chunked_prefill");
  EXPECT_EQ(
      RuntimeFeatures::fast(DeviceKind::kCuda).to_string(),
      "graph+fused+paged_kv+continuous_batching+device_sampling+arena+chunked_prefill+overlap");
  EXPECT_EQ(*RuntimeFeatures::parse("eager", DeviceKind::kCpu), RuntimeFeatures::eager());
  EXPECT_EQ(*RuntimeFeatures::parse("fast", DeviceKind::kCpu),
            RuntimeFeatures::fast(DeviceKind::kCpu));
}

TEST(RuntimeFeatures, GraphNeedsCuda) {
  const auto features = RuntimeFeatures::parse("fused+graph", DeviceKind::kCpu);
  ASSERT_FALSE(features);
  EXPECT_EQ(features.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(features.error().message, HasSubstr("'graph' is not available on the CPU"));
  EXPECT_TRUE(RuntimeFeatures::parse("graph+paged_kv+arena", DeviceKind::kCuda));
}

TEST(RuntimeFeatures, WhatIsNothingWithoutAnotherSaysSo) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"graph+arena", "'graph' needs 'paged_kv'"},
      {"graph+paged_kv", "'graph' needs 'arena'"},
      {"overlap+arena", "'overlap' needs 'device_sampling'"}};
  for (const auto& [text, message] : cases) {
    const auto features = RuntimeFeatures::parse(text, DeviceKind::kCuda);
    ASSERT_FALSE(features) << text;
    EXPECT_EQ(features.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(features.error().message, HasSubstr(message));
  }
}

TEST(RuntimeFeatures, UnknownNameSuggestsTheNearest) {
  const auto features = RuntimeFeatures::parse("fused+page_kv", DeviceKind::kCpu);
  ASSERT_FALSE(features);
  EXPECT_EQ(features.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(features.error().message, HasSubstr("'page_kv'"));
  EXPECT_THAT(features.error().message, HasSubstr("did you mean 'paged_kv'?"));
}

TEST(RuntimeFeatures, WholeRuntimesCannotBeJoined) {
  for (const char* text : {"fast+fused", "fused+eager", "", "+", "fused+"}) {
    const auto features = RuntimeFeatures::parse(text, DeviceKind::kCpu);
    ASSERT_FALSE(features) << text;
    EXPECT_EQ(features.error().code, ErrorCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace triptych
