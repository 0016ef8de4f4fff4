// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/hf_config.h"

#include <gtest/gtest.h>

#include "tests/support/safetensors_builder.h"

namespace triptych {
namespace {

using Json = nlohmann::json;

Result<ModelConfig> parse(const Json& json) {
  return parse_hf_config(json.dump(), "tiny", "config.json");
}

Result<ModelConfig> parse_with(const char* key, const Json& value) {
  Json json = tiny_hf_config();
  json[key] = value;
  return parse(json);
}

void expect_error(const Result<ModelConfig>& config, ErrorCode code, std::string_view part) {
  ASSERT_FALSE(config.has_value()) << part;
  EXPECT_EQ(config.error().code, code) << config.error().message;
  EXPECT_EQ(config.error().where, "config.json");
  EXPECT_NE(config.error().message.find(part), std::string::npos) << config.error().message;
}

TEST(HfConfig, ReadsEveryField) {
  const auto config = parse(tiny_hf_config());
  ASSERT_TRUE(config.has_value()) << config.error().to_string();
  EXPECT_EQ(config->name, "tiny");
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->intermediate_size, 64);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_q_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->vocab_size, 40);
  EXPECT_EQ(config->max_position, 128);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->rope_kind, RopeKind::kHalfSplit);
  EXPECT_EQ(config->rope_scaling.kind, RopeScalingKind::kNone);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_EQ(config->eos_token_id, 2);
}

TEST(HfConfig, FillsInTheDefaultsOfTransformers) {
  Json json = tiny_hf_config();
  for (const char* key :
       {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta",
        "tie_word_embeddings", "bos_token_id", "eos_token_id", "hidden_act", "architectures"}) {
    json.erase(key);
  }
  const auto config = parse(json);
  ASSERT_TRUE(config.has_value()) << config.error().to_string();
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(config->max_position, 2048);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->bos_token_id, std::nullopt);
}

TEST(HfConfig, TakesAHeadDimThatIsNotHiddenOverHeads) {
  EXPECT_EQ(parse_with("head_dim", 16)->head_dim, 16);
  EXPECT_EQ(parse_with("head_dim", nullptr)->head_dim, 8);
}

TEST(HfConfig, ReadsRopeScalingInAllItsForms) {
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  for (const char* type_key : {"rope_type", "type"}) {
    Json scaling = llama3;
    scaling[type_key] = "llama3";
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const auto config = parse_with(key, scaling);
      ASSERT_TRUE(config.has_value()) << config.error().to_string();
      EXPECT_EQ(config->rope_scaling.kind, RopeScalingKind::kLlama3);
      EXPECT_EQ(config->rope_scaling.factor, 8.0);
      EXPECT_EQ(config->rope_scaling.high_freq_factor, 4.0);
      EXPECT_EQ(config->rope_scaling.original_max_position, 8192.0);
      EXPECT_EQ(config->rope_theta, 10000.0);
    }
  }
  const auto linear = parse_with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
  EXPECT_EQ(linear->rope_scaling.kind, RopeScalingKind::kLinear);
  const auto nested =
      parse_with("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}});
  EXPECT_EQ(nested->rope_theta, 5e5);
  EXPECT_EQ(nested->rope_scaling.kind, RopeScalingKind::kNone);

  Json incomplete = llama3;
  incomplete["rope_type"] = "llama3";
  incomplete.erase("low_freq_factor");
  expect_error(parse_with("rope_scaling", incomplete), ErrorCode::kCorrupt, "low_freq_factor");
  expect_error(parse_with("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}),
               ErrorCode::kUnsupported, "\"yarn\"");
}

TEST(HfConfig, RefusesWhatWouldChangeTheResults) {
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  expect_error(parse_with("attention_bias", true), kUnsupported, "attention_bias");
  expect_error(parse_with("mlp_bias", true), kUnsupported, "mlp_bias");
  expect_error(parse_with("hidden_act", "gelu"), kUnsupported, "\"gelu\"");
  expect_error(parse_with("sliding_window", 4096), kUnsupported, "sliding_window");
  expect_error(parse_with("quantization_config", Json::object()), kUnsupported, "quantization");
  expect_error(parse_with("partial_rotary_factor", 0.5), kUnsupported, "partial_rotary_factor");
  expect_error(parse_with("rope_parameters", {{"partial_rotary_factor", 0.5}}), kUnsupported,
               "partial_rotary_factor");
  expect_error(parse_with("model_type", "mixtral"), kUnsupported, "\"mixtral\"");
  expect_error(parse_with("architectures", {"LlamaForSequenceClassification"}), kUnsupported,
               "LlamaForSequenceClassification");
  EXPECT_TRUE(parse_with("sliding_window", nullptr).has_value());
  EXPECT_TRUE(parse_with("attention_bias", false).has_value());
}

TEST(HfConfig, NamesMissingAndWrongFields) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size"}) {
    Json json = tiny_hf_config();
    json.erase(key);
    expect_error(parse(json), ErrorCode::kCorrupt, key);
    json[key] = "many";
    expect_error(parse(json), ErrorCode::kCorrupt, "is of type string, expected an integer");
    json[key] = 0;
    EXPECT_FALSE(parse(json).has_value()) << key;
  }
  expect_error(parse_with("bos_token_id", -1), ErrorCode::kCorrupt, "bos_token_id");
  expect_error(parse_with("eos_token_id", Json::array()), ErrorCode::kCorrupt, "eos_token_id");
  expect_error(parse_with("num_key_value_heads", 3), ErrorCode::kCorrupt, "multiple of");
  expect_error(parse_hf_config("{", "tiny", "config.json"), ErrorCode::kCorrupt, "parse error");
}

}  // namespace
}  // namespace triptych
