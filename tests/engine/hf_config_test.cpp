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

Json family_config(const char* type, const char* hf_class) {
  Json json = tiny_hf_config();
  json["model_type"] = type;
  json["architectures"] = {hf_class};
  return json;
}
Json qwen2_config() { return family_config("qwen2", "Qwen2ForCausalLM"); }
Json mistral_config() { return family_config("mistral", "MistralForCausalLM"); }
Json qwen3_config() { return family_config("qwen3", "Qwen3ForCausalLM"); }
Json with(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

TEST(HfConfig, SetsWhatAFamilyHas) {
  const auto qwen2 = parse(qwen2_config());
  ASSERT_TRUE(qwen2.has_value()) << qwen2.error().to_string();
  EXPECT_EQ(qwen2->architecture, "qwen2");
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->qk_norm);
  EXPECT_EQ(qwen2->sliding_window, 0);
  const auto qwen3 = parse(qwen3_config());
  ASSERT_TRUE(qwen3.has_value()) << qwen3.error().to_string();
  EXPECT_FALSE(qwen3->qkv_bias);
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_EQ(qwen3->head_dim, 128);  // the default of Qwen3Config
  EXPECT_EQ(parse(with(qwen3_config(), {{"head_dim", 32}}))->head_dim, 32);
  expect_error(parse(with(qwen2_config(), {{"architectures", {"LlamaForCausalLM"}}})),
               ErrorCode::kUnsupported, "[\"Qwen2ForCausalLM\"]");
  expect_error(parse(with(qwen3_config(), {{"attention_bias", true}})), ErrorCode::kUnsupported,
               "attention_bias");
}

TEST(HfConfig, HasTheDefaultsOfEachFamily) {
  const auto absent = [](Json json) {
    for (const char* key : {"num_key_value_heads", "max_position_embeddings"}) json.erase(key);
    json["num_attention_heads"] = 32;
    json["head_dim"] = 8;
    return *parse(json);
  };
  EXPECT_EQ(absent(tiny_hf_config()).num_kv_heads, 32);
  EXPECT_EQ(absent(mistral_config()).num_kv_heads, 8);
  EXPECT_EQ(absent(mistral_config()).max_position, 131072);
  EXPECT_EQ(absent(mistral_config()).sliding_window, 4096);
  EXPECT_EQ(absent(qwen2_config()).max_position, 32768);
  // Null is not absent: it asks for one KV head per query head.
  EXPECT_EQ(parse(with(mistral_config(), {{"num_key_value_heads", nullptr}}))->num_kv_heads, 4);
}

TEST(HfConfig, ReadsWindowsInAllTheirForms) {
  const auto mistral = parse(with(mistral_config(), {{"sliding_window", 100}}));
  ASSERT_TRUE(mistral.has_value()) << mistral.error().to_string();
  EXPECT_EQ(mistral->window(0), 100);
  EXPECT_EQ(mistral->window(1), 100);
  EXPECT_EQ(parse(with(mistral_config(), {{"sliding_window", nullptr}}))->window(1), 0);

  const Json window = {{"sliding_window", 9}, {"max_window_layers", 1}};
  EXPECT_EQ(parse(with(qwen2_config(), window))->window(1), 0) << "use_sliding_window is off";
  Json used = with(qwen2_config(), window);
  used["use_sliding_window"] = true;
  EXPECT_EQ(parse(used)->window(0), 0);
  EXPECT_EQ(parse(used)->window(1), 9);
  used["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(parse(used)->window(0), 9);
  EXPECT_EQ(parse(used)->window(1), 0);
  used["sliding_window"] = nullptr;
  EXPECT_EQ(parse(used)->window(0), 0);
}

TEST(HfConfig, RefusesWindowsThatContradictThemselves) {
  constexpr auto kCorrupt = ErrorCode::kCorrupt;
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  expect_error(parse(with(mistral_config(), {{"sliding_window", 0}})), kCorrupt,
               "\"sliding_window\" is 0");
  expect_error(parse(with(mistral_config(), {{"sliding_window", -3}})), kCorrupt,
               "\"sliding_window\" is -3");
  Json qwen = with(qwen3_config(), {{"layer_types", {"full_attention"}}});
  expect_error(parse(qwen), kCorrupt, "\"layer_types\" has 1 entries, expected one a layer, 2");
  qwen["layer_types"] = {"full_attention", "linear_attention"};
  expect_error(parse(qwen), kUnsupported, "\"linear_attention\"");
  const Json mixed = {{"layer_types", {"sliding_attention", "full_attention"}}};
  expect_error(parse(with(mistral_config(), mixed)), kUnsupported,
               "\"full_attention\", but every layer of a mistral model has the window");
  expect_error(parse(with(tiny_hf_config(), mixed)), kUnsupported, "has full attention");
  expect_error(
      parse(with(qwen2_config(), {{"use_sliding_window", true}, {"max_window_layers", -1}})),
      kCorrupt, "max_window_layers is -1");
}

TEST(HfConfig, RefusesRopeSettingsPerLayerType) {
  expect_error(parse_with("rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}),
               ErrorCode::kUnsupported, "\"full_attention\"");
}

TEST(HfConfig, WhatIsWrittenReadsBack) {
  for (const std::string& arch : synthetic_architectures()) {
    ModelConfig config = *synthetic_config(arch);
    config.eos_token_id = 3;
    if (arch.starts_with("qwen")) {
      config.sliding_window = 77;
      config.first_window_layer = 1;
    }
    if (arch == "qwen3-tiny") config.window_layers = {true, false};
    if (arch == "llama-tiny") {
      config.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 2.5};
    }
    const Json json = hf_config_json(config, "float16");
    const auto read = parse(json);
    ASSERT_TRUE(read.has_value()) << arch << read.error().to_string();
    EXPECT_EQ(hf_config_json(*read, "float16"), json) << arch;
    EXPECT_EQ(read->qkv_bias, config.qkv_bias);
    EXPECT_EQ(read->qk_norm, config.qk_norm);
    EXPECT_EQ(read->num_parameters(), config.num_parameters());
    EXPECT_EQ(read->attended_tokens(1000), config.attended_tokens(1000));
    EXPECT_EQ(read->rope_scaling.factor, config.rope_scaling.factor);
    EXPECT_EQ(read->eos_token_id, 3);
  }
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
