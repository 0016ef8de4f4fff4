// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/weight_shapes.h"

#include <gtest/gtest.h>

#include "engine/shard.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

constexpr WeightScheme kSchemes[] = {WeightScheme::kF32, WeightScheme::kF16,
                                     WeightScheme::kW4A16G32, WeightScheme::kW4A16G64,
                                     WeightScheme::kStored};

void expect_same(const WeightView& shape, const WeightView& loaded) {
  EXPECT_EQ(shape.data, nullptr);
  EXPECT_EQ(shape.dtype, loaded.dtype);
  EXPECT_EQ(shape.rows, loaded.rows);
  EXPECT_EQ(shape.columns, loaded.columns);
}

void expect_same(const ModelWeights& shapes, const ModelWeights& loaded) {
  EXPECT_EQ(shapes.bytes(), loaded.bytes());
  EXPECT_EQ(shapes.bytes_per_decode_step(), loaded.bytes_per_decode_step());
  expect_same(shapes.embed, loaded.embed);
  expect_same(shapes.lm_head, loaded.lm_head);
  ASSERT_EQ(shapes.layers.size(), loaded.layers.size());
  const LayerWeights& a = shapes.layers.back();
  const LayerWeights& b = loaded.layers.back();
  for (const auto member : {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v, &LayerWeights::o,
                            &LayerWeights::gate, &LayerWeights::up, &LayerWeights::down}) {
    expect_same(a.*member, b.*member);
  }
  for (const auto member : {&LayerWeights::attn_norm, &LayerWeights::q_bias, &LayerWeights::k_norm,
                            &LayerWeights::ffn_norm}) {
    EXPECT_EQ((a.*member).size(), (b.*member).size());
  }
}

TEST(WeightShapes, AreThoseOfTheLoadedWeights) {
  for (const char* arch : {"llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny"}) {
    const auto checkpoint = open_synthetic({.synthetic = arch});
    ASSERT_TRUE(checkpoint.has_value());
    for (const WeightScheme scheme : kSchemes) {
      SCOPED_TRACE(std::string(arch) + " " + std::string(weight_scheme_name(scheme)));
      const auto loaded = load_weights(*checkpoint, scheme);
      const auto shapes = weight_shapes(*checkpoint, scheme);
      ASSERT_TRUE(loaded.has_value() && shapes.has_value());
      expect_same(**shapes, **loaded);
    }
  }
}

TEST(WeightShapes, TypesOfAFileAreKeptByTheSameRules) {
  const TempDir dir;
  GgufBuilder builder = tiny_llama_gguf();
  for (GgufBuilder::Tensor& tensor : builder.tensors) {
    const bool keep = tensor.name.find("norm") != std::string::npos;
    if (keep || tensor.name.find("attn_v") != std::string::npos) continue;
    constexpr uint32_t kQ4_0 = 2;  // blocks of 18 bytes for 32 elements
    constexpr uint32_t kQ8_0 = 8;  // and of 34
    const bool table = tensor.name == "token_embd.weight";
    tensor.type = table ? kQ8_0 : kQ4_0;
    tensor.data = std::string(tensor.dims[0] * tensor.dims[1] / 32 * (table ? 34 : 18), '\0');
  }
  const auto checkpoint = open_gguf(dir.write("m.gguf", builder.build()));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
  for (const WeightScheme scheme :
       {WeightScheme::kF16, WeightScheme::kW4A16G32, WeightScheme::kStored}) {
    SCOPED_TRACE(weight_scheme_name(scheme));
    const auto loaded = load_weights(*checkpoint, scheme);
    const auto shapes = weight_shapes(*checkpoint, scheme);
    ASSERT_TRUE(loaded.has_value() && shapes.has_value());
    expect_same(**shapes, **loaded);
  }
}

TEST(WeightShapes, AreDividedAmongRanksLikeWeights) {
  const auto checkpoint = open_synthetic({.synthetic = "qwen2-tiny"});
  ASSERT_TRUE(checkpoint.has_value());
  const auto loaded = make_shards(*load_weights(*checkpoint, WeightScheme::kF16), 2);
  const auto shapes = make_shards(*weight_shapes(*checkpoint, WeightScheme::kF16), 2);
  ASSERT_TRUE(loaded.has_value() && shapes.has_value());
  for (size_t rank = 0; rank < 2; ++rank) expect_same(*(*shapes)[rank], *(*loaded)[rank]);
}

}  // namespace
}  // namespace triptych
