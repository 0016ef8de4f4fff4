// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/hash.h"
#include "engine/checkpoint.h"
#include "engine/tokenizer.h"
#include "kernels/rope.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_path.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

class GgufCheckpoint : public testing::Test {
 protected:
  Result<std::shared_ptr<const Checkpoint>> open(const GgufBuilder& builder) {
    return open_gguf(dir_.write("tiny.gguf", builder.build()));
  }
  void expect_error(const GgufBuilder& builder, ErrorCode code, std::string_view part) {
    const auto checkpoint = open(builder);
    ASSERT_FALSE(checkpoint.has_value()) << part;
    EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
    EXPECT_NE(checkpoint.error().message.find(part), std::string::npos)
        << checkpoint.error().message;
    EXPECT_NE(checkpoint.error().where.find("tiny.gguf"), std::string::npos);
  }
  TempDir dir_;
};

TEST_F(GgufCheckpoint, ReadsConfigAndTensors) {
  const auto opened = open(tiny_llama_gguf());
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  const Checkpoint& checkpoint = **opened;
  const ModelConfig& config = checkpoint.config();
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.intermediate_size, 64);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_q_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.vocab_size, 40);
  EXPECT_EQ(config.max_position, 128);
  EXPECT_EQ(config.rope_kind, RopeKind::kInterleaved);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(checkpoint.origin(), "gguf:tiny.gguf");
  EXPECT_EQ(checkpoint.hash(), *file_hash(dir_.path() / "tiny.gguf"));
  EXPECT_EQ(checkpoint.tokenizer(), nullptr);

  const auto k = checkpoint.tensor("layers.1.k");
  ASSERT_TRUE(k.has_value());
  EXPECT_EQ(k->rows, 16);
  EXPECT_EQ(k->columns, 32);
  EXPECT_EQ(k->dtype, DType::kF32);
  // blk.1.attn_k is the thirteenth tensor of the builder.
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(k->data), 16 * 32 * 4),
            random_floats(16 * 32, 12));
  EXPECT_EQ(checkpoint.tensor("final_norm")->columns, 32);
  EXPECT_EQ(checkpoint.tensor("lm_head")->rows, 40);
  EXPECT_EQ(checkpoint.tensor("layers.2.k").error().code, ErrorCode::kNotFound);
}

TEST_F(GgufCheckpoint, WithoutAnOutputMatrixTheEmbeddingIsTied) {
  GgufBuilder builder = tiny_llama_gguf();
  builder.tensors.pop_back();
  const auto opened = open(builder);
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_TRUE((*opened)->config().tie_word_embeddings);
  EXPECT_EQ((*opened)->tensor("lm_head").error().code, ErrorCode::kNotFound);
}

TEST_F(GgufCheckpoint, NamesMissingAndSurplusTensors) {
  GgufBuilder builder = tiny_llama_gguf();
  builder.tensors.erase(builder.tensors.begin() + 2);
  expect_error(builder, ErrorCode::kCorrupt, "tensor \"blk.0.attn_q.weight\" is missing");
  builder = tiny_llama_gguf();
  builder.tensors.push_back({"blk.0.attn_q.bias", {32}, 0, random_floats(32, 1)});
  expect_error(builder, ErrorCode::kUnsupported, "\"blk.0.attn_q.bias\" has no place");
}

TEST_F(GgufCheckpoint, NamesExpectedAndFoundShapes) {
  GgufBuilder builder = tiny_llama_gguf();
  std::swap(builder.tensors[3].dims[0], builder.tensors[3].dims[1]);
  expect_error(builder, ErrorCode::kCorrupt,
               "tensor \"blk.0.attn_k.weight\" has shape [32, 16], expected [16, 32]");
  builder = tiny_llama_gguf();
  builder.tensors[1].dims = {8, 4};
  expect_error(builder, ErrorCode::kCorrupt, "has shape [4, 8], expected [32]");
}

TEST_F(GgufCheckpoint, ALieAboutTheLayersCostsNothing) {
  GgufBuilder builder = tiny_llama_gguf();
  builder.remove("llama.block_count").add("llama.block_count", 2147483647u);
  expect_error(builder, ErrorCode::kCorrupt, "tensor \"blk.2.attn_norm.weight\" is missing");
}

TEST_F(GgufCheckpoint, RefusesConfigsThatContradictThemselves) {
  const auto with = [](const char* key, uint32_t value) {
    GgufBuilder builder = tiny_llama_gguf();
    builder.remove(key).add(key, value);
    return builder;
  };
  expect_error(with("llama.attention.head_count", 0), ErrorCode::kCorrupt, "head_count\" is 0");
  expect_error(with("llama.attention.head_count_kv", 3), ErrorCode::kCorrupt, "multiple of");
  expect_error(with("llama.vocab_size", 41), ErrorCode::kCorrupt, "is 41, tensor");
  expect_error(with("llama.feed_forward_length", 0), ErrorCode::kCorrupt, "intermediate_size is 0");
  expect_error(with("llama.rope.dimension_count", 4), ErrorCode::kUnsupported,
               "is 4, expected the head dimension, 8");
  expect_error(with("llama.expert_count", 8), ErrorCode::kUnsupported, "\"llama.expert_count\" is");
  expect_error(with("llama.attention.causal", 0), ErrorCode::kUnsupported, "is 0, expected 1");
  GgufBuilder builder = tiny_llama_gguf();
  builder.add("tokenizer.ggml.eos_token_id", uint32_t{1} << 31);
  expect_error(builder, ErrorCode::kCorrupt, "eos_token_id\" is 2147483648, expected a token id");
  builder = tiny_llama_gguf();
  builder.remove("llama.block_count");
  expect_error(builder, ErrorCode::kCorrupt, "key \"llama.block_count\" is missing");
  builder = tiny_llama_gguf();
  builder.remove("general.architecture").add("general.architecture", std::string_view("mamba"));
  expect_error(builder, ErrorCode::kUnsupported, "\"mamba\", expected llama, qwen2 or qwen3");
}

TEST_F(GgufCheckpoint, RefusesRopeScalingThatItDoesNotKnow) {
  GgufBuilder builder = tiny_llama_gguf();
  builder.add("llama.rope.scaling.type", std::string_view("yarn"));
  expect_error(builder, ErrorCode::kUnsupported, "\"yarn\", expected none or linear");
  builder = tiny_llama_gguf();
  builder.add("llama.rope.scaling.type", std::string_view("linear"))
      .add("llama.rope.scaling.factor", 4.0f);
  const auto opened = open(builder);
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_EQ((*opened)->config().rope_scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ((*opened)->config().rope_scaling.factor, 4.0);
}

TEST_F(GgufCheckpoint, RecognisesTheFrequencyFactorsOfLlama3) {
  constexpr int64_t kHeadDim = 8;
  RopeScaling scaling{.kind = RopeScalingKind::kLlama3};
  scaling.factor = 32.0;
  // A large theta, so that the four frequencies fall into all three bands of the scaling.
  const auto plain = rope_inverse_frequencies(5e5, kHeadDim, {});
  const auto scaled = rope_inverse_frequencies(5e5, kHeadDim, scaling);
  std::string factors;
  for (size_t i = 0; i < plain.size(); ++i) factors += raw(plain[i] / scaled[i]);
  GgufBuilder builder = tiny_llama_gguf();
  builder.remove("llama.rope.freq_base").add("llama.rope.freq_base", 5e5f);
  builder.tensors.push_back({"rope_freqs.weight", {kHeadDim / 2}, 0, factors});
  const auto opened = open(builder);
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_EQ((*opened)->config().rope_scaling.kind, RopeScalingKind::kLlama3);
  // Division of two floats; half an ulp each.
  EXPECT_NEAR((*opened)->config().rope_scaling.factor, 32.0, 32.0 * 2e-7);

  builder.tensors.back().data.replace(4, 4, raw(5.0f));
  expect_error(builder, ErrorCode::kUnsupported, "factor 1 is 5");
  builder.tensors.back() = {"rope_freqs.weight", {2}, 0, random_floats(2, 1)};
  expect_error(builder, ErrorCode::kCorrupt, "has 8 bytes of type f32, expected 16");
}

/// The tiny model under the name of another family, with what that family adds.
GgufBuilder family_gguf(const std::string& family) {
  GgufBuilder builder = tiny_llama_gguf();
  for (auto& [key, value] : builder.keys) {
    if (key.starts_with("llama.")) key = family + key.substr(5);
  }
  builder.remove("general.architecture").add("general.architecture", std::string_view(family));
  for (const std::string& block : {std::string("blk.0."), std::string("blk.1.")}) {
    if (family == "qwen2") {
      builder.tensors.push_back({block + "attn_q.bias", {32}, 0, random_floats(32, 51)});
      builder.tensors.push_back({block + "attn_k.bias", {16}, 0, random_floats(16, 52)});
      builder.tensors.push_back({block + "attn_v.bias", {16}, 0, random_floats(16, 53)});
    } else {
      builder.tensors.push_back({block + "attn_q_norm.weight", {8}, 0, random_floats(8, 54)});
      builder.tensors.push_back({block + "attn_k_norm.weight", {8}, 0, random_floats(8, 55)});
    }
  }
  return builder;
}

TEST_F(GgufCheckpoint, ReadsTheOtherFamilies) {
  const auto qwen2 = open(family_gguf("qwen2"));
  ASSERT_TRUE(qwen2.has_value()) << qwen2.error().to_string();
  EXPECT_EQ((*qwen2)->config().architecture, "qwen2");
  EXPECT_TRUE((*qwen2)->config().qkv_bias);
  // Only Llama's q and k are permuted in GGUF files.
  EXPECT_EQ((*qwen2)->config().rope_kind, RopeKind::kHalfSplit);
  const WeightView bias = *(*qwen2)->tensor("layers.1.v_bias");
  EXPECT_EQ(bias.rows, 1);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bias.data), 64), random_floats(16, 53));

  const auto qwen3 = open(family_gguf("qwen3"));
  ASSERT_TRUE(qwen3.has_value()) << qwen3.error().to_string();
  EXPECT_TRUE((*qwen3)->config().qk_norm);
  EXPECT_EQ((*qwen3)->config().rope_kind, RopeKind::kHalfSplit);
  EXPECT_EQ((*qwen3)->tensor("layers.0.k_norm")->columns, 8);

  GgufBuilder builder = family_gguf("qwen2");
  builder.tensors.pop_back();
  expect_error(builder, ErrorCode::kCorrupt, "tensor \"blk.1.attn_v.bias\" is missing");
  builder = family_gguf("qwen3");
  builder.remove("general.architecture").add("general.architecture", std::string_view("qwen2"));
  expect_error(builder, ErrorCode::kCorrupt, "key \"qwen2.embedding_length\" is missing");
  builder = family_gguf("mistral");
  expect_error(builder, ErrorCode::kUnsupported, "\"mistral\", expected llama, qwen2 or qwen3");
}

TEST_F(GgufCheckpoint, ReadsTheWindow) {
  GgufBuilder builder = tiny_llama_gguf();
  builder.add("llama.attention.sliding_window", 64u);
  const auto opened = open(builder);
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_EQ((*opened)->config().window(1), 64);
  builder.add("llama.attention.sliding_window_pattern", 2u);
  expect_error(builder, ErrorCode::kUnsupported, "sliding_window_pattern\" is set");
}

TEST_F(GgufCheckpoint, EveryTruncationIsAnErrorAndMutationsDoNotCrash) {
  const std::string bytes = tiny_llama_gguf().build();
  const size_t data = bytes.size() - 32;  // well inside the last tensor
  for (size_t size = 0; size < bytes.size(); size += size < 3000 ? 1 : 997) {
    ASSERT_FALSE(open_gguf(dir_.write("cut.gguf", bytes.substr(0, size))).has_value()) << size;
  }
  ASSERT_FALSE(open_gguf(dir_.write("cut.gguf", bytes.substr(0, data))).has_value());
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    RandomStream random(seed);
    std::string mutated = bytes;
    // Metadata and tensor infos are the first 2.5 KB.
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      mutated[random.below(2500)] = static_cast<char>(random.below(256));
    }
    const auto opened = open_gguf(dir_.write("mutated.gguf", mutated));
    if (opened) {
      EXPECT_GT((*opened)->config().num_parameters(), 0);
    }
  }
}

TEST(RealGguf, HasTheKnownShape) {
  TRIPTYCH_SKIP_WITHOUT_MODEL();
  const auto opened = open_gguf(model_path());
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  const ModelConfig& config = (*opened)->config();
  const auto expected = synthetic_config("smollm2-135m");
  ASSERT_TRUE(expected.has_value());
  EXPECT_EQ(config.num_parameters(), expected->num_parameters());
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rope_theta, 1e5);
  EXPECT_NEAR(config.rms_norm_eps, 1e-5, 1e-12);  // stored as f32
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_id, 2);
  EXPECT_EQ((*opened)->tensor("embed")->dtype, DType::kQ8_0);
  EXPECT_EQ((*opened)->tensor("layers.29.down")->dtype, DType::kQ4_1);
  EXPECT_EQ((*opened)->tensor("layers.29.ffn_norm")->dtype, DType::kF32);
  ASSERT_NE((*opened)->tokenizer(), nullptr);
  EXPECT_EQ((*opened)->tokenizer()->vocab_size(), 49152);
}

}  // namespace
}  // namespace triptych
