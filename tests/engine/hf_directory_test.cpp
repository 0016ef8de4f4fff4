// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "engine/checkpoint.h"
#include "engine/tokenizer.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors_builder.h"

namespace triptych {
namespace {

using Json = nlohmann::json;

class HfDirectory : public testing::Test {
 protected:
  void SetUp() override { dir_.write("config.json", tiny_hf_config().dump()); }

  void expect_error(ErrorCode code, std::string_view part, std::string_view where) {
    const auto checkpoint = open_hf_directory(dir_.path());
    ASSERT_FALSE(checkpoint.has_value()) << part;
    const Error& error = checkpoint.error();
    EXPECT_EQ(error.code, code) << error.to_string();
    EXPECT_NE(error.message.find(part), std::string::npos) << error.to_string();
    EXPECT_NE(error.where.find(where), std::string::npos) << error.to_string();
  }

  /// Two shards, the second from tensor 9 on, and the index.
  void write_shards(const std::string& second_name, const Json& overrides = Json::object()) {
    SafetensorsBuilder shards[2];
    Json map;
    uint64_t seed = 0;
    for (const auto& [name, shape] : tiny_hf_tensors()) {
      const size_t shard = seed < 9 ? 0 : 1;
      const int64_t count = shape[0] * (shape.size() > 1 ? shape[1] : 1);
      shards[shard].add(name, "F32", shape, random_floats(count, seed++));
      map[name] = shard == 0 ? "model-1-of-2.safetensors" : second_name;
    }
    map.update(overrides);
    dir_.write("model-1-of-2.safetensors", shards[0].build());
    dir_.write("model-2-of-2.safetensors", shards[1].build());
    dir_.write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  }

  TempDir dir_;
};

std::string bytes_of(const WeightView& view) {
  return {reinterpret_cast<const char*>(view.data), static_cast<size_t>(view.bytes())};
}

TEST_F(HfDirectory, ReadsOneFile) {
  dir_.write("model.safetensors", tiny_hf_weights().build());
  const auto opened = open_hf_directory(dir_.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.config().rope_kind, RopeKind::kHalfSplit);
  EXPECT_EQ(checkpoint.origin(), "safetensors:" + dir_.path().filename().string());
  EXPECT_EQ(checkpoint.config().name, dir_.path().filename().string());
  EXPECT_EQ(checkpoint.tokenizer(), nullptr);
  EXPECT_EQ(checkpoint.hash().size(), 32u);
  const auto& names = tiny_hf_tensors();
  EXPECT_EQ(names[5].first, "model.layers.0.self_attn.k_proj.weight");
  const auto k = checkpoint.tensor("layers.0.k");
  ASSERT_TRUE(k.has_value());
  EXPECT_EQ(k->rows, 16);
  EXPECT_EQ(bytes_of(*k), random_floats(16 * 32, 5));
  EXPECT_EQ(bytes_of(*checkpoint.tensor("final_norm")), random_floats(32, 1));
  EXPECT_EQ(bytes_of(*checkpoint.tensor("lm_head")), random_floats(40 * 32, 2));
  EXPECT_EQ(bytes_of(*checkpoint.tensor("layers.1.down")), random_floats(32 * 64, 20));

  const auto with_slash = open_hf_directory(dir_.path() / "");
  ASSERT_TRUE(with_slash.has_value());
  EXPECT_EQ((*with_slash)->origin(), checkpoint.origin());
}

TEST_F(HfDirectory, ShardsGiveTheSameTensors) {
  write_shards("model-2-of-2.safetensors");
  const auto opened = open_hf_directory(dir_.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_EQ(bytes_of(*(*opened)->tensor("layers.0.k")), random_floats(16 * 32, 5));
  EXPECT_EQ(bytes_of(*(*opened)->tensor("layers.1.down")), random_floats(32 * 64, 20));
}

TEST_F(HfDirectory, TheHashFollowsEveryFile) {
  dir_.write("model.safetensors", tiny_hf_weights().build());
  const std::string before = (*open_hf_directory(dir_.path()))->hash();
  dir_.write("model.safetensors", tiny_hf_weights(1).build());
  const std::string other_weights = (*open_hf_directory(dir_.path()))->hash();
  Json config = tiny_hf_config();
  config["rope_theta"] = 20000.0;
  dir_.write("config.json", config.dump());
  const std::string other_config = (*open_hf_directory(dir_.path()))->hash();
  EXPECT_NE(before, other_weights);
  EXPECT_NE(other_weights, other_config);
}

TEST_F(HfDirectory, ShardNamesCannotLeaveTheDirectory) {
  for (const char* name :
       {"../model-2-of-2.safetensors", "/etc/passwd", "sub/x", "..", "", "a\\b"}) {
    write_shards(name);
    expect_error(ErrorCode::kCorrupt, "expected a file name without a folder", "index.json");
  }
}

TEST_F(HfDirectory, ShardsAndIndexMustAgree) {
  write_shards("model-3-of-2.safetensors");
  expect_error(ErrorCode::kNotFound, "", "model-3-of-2.safetensors");
  write_shards("model-2-of-2.safetensors", {{"lm_head.weight", "model-2-of-2.safetensors"}});
  expect_error(ErrorCode::kCorrupt, "\"lm_head.weight\" is not in this shard", "model-1-of-2");
  write_shards("model-2-of-2.safetensors", {{"lm_head.weight", 3}});
  expect_error(ErrorCode::kCorrupt, "is no string", "index.json");
  dir_.write("model.safetensors.index.json", "{}");
  expect_error(ErrorCode::kCorrupt, "\"weight_map\" is missing", "index.json");
}

TEST_F(HfDirectory, NamesMissingSurplusAndMisshapenTensors) {
  SafetensorsBuilder builder;
  uint64_t seed = 0;
  for (const auto& [name, shape] : tiny_hf_tensors()) {
    if (name == "model.layers.1.mlp.up_proj.weight") continue;
    builder.add(name, "F32", shape,
                random_floats(shape[0] * (shape.size() > 1 ? shape[1] : 1), seed++));
  }
  dir_.write("model.safetensors", builder.build());
  expect_error(ErrorCode::kCorrupt, "\"model.layers.1.mlp.up_proj.weight\" is missing", "");

  builder.add("model.layers.1.mlp.up_proj.weight", "F32", {32, 64}, random_floats(2048, 1));
  dir_.write("model.safetensors", builder.build());
  expect_error(ErrorCode::kCorrupt, "has shape [32, 64], expected [64, 32]", "model.safetensors");

  builder = tiny_hf_weights();
  builder.add("model.layers.0.self_attn.q_proj.bias", "F32", {32}, random_floats(32, 1));
  dir_.write("model.safetensors", builder.build());
  expect_error(ErrorCode::kUnsupported, "q_proj.bias\" has no place", "model.safetensors");

  builder = tiny_hf_weights();
  builder.add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {4}, random_floats(4, 1));
  dir_.write("model.safetensors", builder.build());
  EXPECT_TRUE(open_hf_directory(dir_.path()).has_value());
}

TEST_F(HfDirectory, TiesByTheConfig) {
  Json config = tiny_hf_config();
  config["tie_word_embeddings"] = true;
  dir_.write("config.json", config.dump());
  dir_.write("model.safetensors", tiny_hf_weights().build());
  const auto opened = open_hf_directory(dir_.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_EQ((*opened)->tensor("lm_head").error().code, ErrorCode::kNotFound);
}

TEST_F(HfDirectory, RefusesTypesAndPlacesThatItCannotRead) {
  SafetensorsBuilder builder = tiny_hf_weights();
  builder.header["model.norm.weight"]["dtype"] = "I32";
  dir_.write("model.safetensors", builder.build());
  expect_error(ErrorCode::kUnsupported, "\"model.norm.weight\" has type \"I32\"", "");

  const std::string header = tiny_hf_weights().header.dump();
  const std::string good = tiny_hf_weights().build();
  uint64_t padded = 0;
  std::memcpy(&padded, good.data(), sizeof(padded));
  // One more space moves all data to an odd address.
  dir_.write("model.safetensors", raw(padded + 1) + header +
                                      std::string(padded + 1 - header.size(), ' ') +
                                      good.substr(8 + padded));
  expect_error(ErrorCode::kUnsupported, "does not start at a multiple of 4 bytes", "");
}

TEST_F(HfDirectory, ReadsTheTokenizer) {
  Json config = tiny_hf_config();
  config["vocab_size"] = 407;
  dir_.write("config.json", config.dump());
  SafetensorsBuilder builder;
  for (auto [name, shape] : tiny_hf_tensors()) {
    if (shape[0] == 40) shape[0] = 407;
    builder.add(name, "F32", shape, random_floats(shape[0] * (shape.size() > 1 ? shape[1] : 1), 1));
  }
  dir_.write("model.safetensors", builder.build());
  std::filesystem::copy_file(golden_dir() / "tokenizer" / "byte_level.json",
                             dir_.path() / "tokenizer.json");
  const auto opened = open_hf_directory(dir_.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  ASSERT_NE((*opened)->tokenizer(), nullptr);
  EXPECT_EQ((*opened)->tokenizer()->vocab_size(), 407);

  dir_.write("config.json", tiny_hf_config().dump());
  dir_.write("model.safetensors", tiny_hf_weights().build());
  expect_error(ErrorCode::kCorrupt, "407 tokens, the embedding 40 rows", "tokenizer.json");
}

TEST_F(HfDirectory, SaysWhatIsMissing) {
  expect_error(ErrorCode::kNotFound, "", "model.safetensors");
  std::filesystem::remove(dir_.path() / "config.json");
  expect_error(ErrorCode::kNotFound, "", "config.json");
}

TEST_F(HfDirectory, TruncationIsAnError) {
  const std::string bytes = tiny_hf_weights().build();
  for (size_t size = 0; size < bytes.size(); size += size < 4000 ? 13 : 997) {
    dir_.write("model.safetensors", bytes.substr(0, size));
    ASSERT_FALSE(open_hf_directory(dir_.path()).has_value()) << size;
  }
}

}  // namespace
}  // namespace triptych
