// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace triptych {
namespace {

ModelConfig tiny() { return *synthetic_config("llama-tiny"); }

void expect_error(const std::function<void(ModelConfig&)>& change, ErrorCode code,
                  std::string_view part) {
  ModelConfig config = tiny();
  change(config);
  const Status status = validate(config, "file");
  ASSERT_FALSE(status.has_value()) << part;
  EXPECT_EQ(status.error().code, code) << status.error().message;
  EXPECT_EQ(status.error().where, "file");
  EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
}

TEST(ModelConfig, SyntheticShapesAreValidAndHaveThePublishedSize) {
  for (const std::string& arch : synthetic_architectures()) {
    const auto config = synthetic_config(arch);
    ASSERT_TRUE(config.has_value());
    EXPECT_TRUE(validate(*config, arch).has_value()) << arch;
    EXPECT_EQ(config->name, "synthetic:" + arch);
  }
  EXPECT_EQ(synthetic_config("smollm2-135m")->num_parameters(), 134515008);
  EXPECT_EQ(synthetic_config("llama-3.1-8b")->num_parameters(), 8030261248);
  EXPECT_EQ(synthetic_config("mistral-7b")->num_parameters(), 7241732096);
  EXPECT_EQ(synthetic_config("qwen2.5-7b")->num_parameters(), 7615616512);
  EXPECT_EQ(synthetic_config("qwen3-8b")->num_parameters(), 8190735360);
}

TEST(ModelConfig, CountsParametersOneByOne) {
  // embed and lm_head; per layer q, k, v, o, gate, up, down, two norms; the last norm.
  EXPECT_EQ(tiny().num_parameters(),
            2 * 512 * 64 + 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 192 * 64 + 2 * 64) + 64);
}

TEST(ModelConfig, CountsBiasesAndHeadNorms) {
  ModelConfig config = tiny();
  const int64_t plain = config.num_parameters();
  EXPECT_EQ(config.num_vector_parameters(), 2 * 2 * 64 + 64);
  config.qkv_bias = true;
  EXPECT_EQ(config.num_parameters(), plain + 2 * (4 + 2 + 2) * 16);
  config.qk_norm = true;
  EXPECT_EQ(config.num_parameters(), plain + 2 * (4 + 2 + 2) * 16 + 2 * 2 * 16);
}

TEST(ModelConfig, WindowsBoundWhatALayerReads) {
  ModelConfig config = tiny();
  EXPECT_EQ(config.attended_tokens(100), 200);
  config.sliding_window = 30;
  EXPECT_EQ(config.attended_tokens(100), 60);
  EXPECT_EQ(config.attended_tokens(20), 40);
  config.first_window_layer = 1;
  EXPECT_EQ(config.window(0), 0);
  EXPECT_EQ(config.attended_tokens(100), 130);
  config.window_layers = {true, false};
  EXPECT_EQ(config.window(0), 30);
  EXPECT_EQ(config.window(1), 0);
}

TEST(ModelConfig, KvBytesOfOneToken) {
  EXPECT_EQ(tiny().kv_bytes_per_token(2), 2 * 2 * 2 * 16 * 2);
}

TEST(ModelConfig, UnknownArchitectureSuggestsTheNearest) {
  const auto config = synthetic_config("llama-tinny");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, ErrorCode::kNotFound);
  EXPECT_NE(config.error().message.find("did you mean \"llama-tiny\"?"), std::string::npos);
  EXPECT_EQ(synthetic_config("xyz").error().message.find("did you mean"), std::string::npos);
}

TEST(ModelConfig, ValidationNamesTheField) {
  using Config = ModelConfig;
  constexpr auto kCorrupt = ErrorCode::kCorrupt;
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  expect_error([](Config& c) { c.architecture = "gpt2"; }, kUnsupported, "architecture");
  expect_error([](Config& c) { c.hidden_size = 0; }, kCorrupt, "hidden_size is 0");
  expect_error([](Config& c) { c.num_layers = -1; }, kCorrupt, "num_layers is -1");
  expect_error([](Config& c) { c.vocab_size = int64_t{1} << 31; }, kCorrupt, "vocab_size");
  expect_error([](Config& c) { c.max_position = 0; }, kCorrupt, "max_position");
  expect_error([](Config& c) { c.num_kv_heads = 3; }, kCorrupt,
               "num_q_heads is 4, expected a multiple of num_kv_heads, 3");
  expect_error([](Config& c) { c.head_dim = 15; }, kUnsupported, "head_dim is 15");
  expect_error([](Config& c) { c.head_dim = int64_t{1} << 30; }, kCorrupt, "num_q_heads * head");
  expect_error([](Config& c) { c.sliding_window = -1; }, kCorrupt, "sliding_window is -1");
  expect_error([](Config& c) { c.first_window_layer = -1; }, kCorrupt, "max_window_layers is -1");
  expect_error([](Config& c) { c.window_layers = {true}; }, kCorrupt, "layer_types is 1");
  expect_error([](Config& c) { c.rms_norm_eps = -1; }, kCorrupt, "rms_norm_eps");
  expect_error([](Config& c) { c.rope_theta = std::numeric_limits<double>::quiet_NaN(); }, kCorrupt,
               "rope_theta");
  expect_error([](Config& c) { c.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 0}; },
               kCorrupt, "factor");
  expect_error(
      [](Config& c) {
        c.rope_scaling = {.kind = RopeScalingKind::kLlama3, .low_freq_factor = 4.0};
      },
      kCorrupt, "high_freq_factor");
  expect_error(
      [](Config& c) {
        c.rope_scaling = {.kind = RopeScalingKind::kLlama3, .original_max_position = 1e56};
      },
      kCorrupt, "original_max_position_embeddings is 1e+56");
}

}  // namespace
}  // namespace triptych
