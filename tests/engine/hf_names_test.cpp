// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/hf_names.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/model_tensors.h"

namespace triptych {
namespace {

TEST(HfNames, AreThoseOfTransformers) {
  EXPECT_EQ(hf_tensor_name("embed"), "model.embed_tokens.weight");
  EXPECT_EQ(hf_tensor_name("lm_head"), "lm_head.weight");
  EXPECT_EQ(hf_tensor_name("layers.12.o"), "model.layers.12.self_attn.o_proj.weight");
  EXPECT_EQ(hf_tensor_name("layers.0.k_bias"), "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(hf_tensor_name("layers.0.q_norm"), "model.layers.0.self_attn.q_norm.weight");
}

TEST(HfNames, AreDifferentForEveryTensor) {
  ModelConfig config = *synthetic_config("qwen2-tiny");
  config.qk_norm = true;
  config.tie_word_embeddings = false;
  std::set<std::string> names;
  const Status status = for_each_tensor(config, [&](const TensorSpec& spec) -> Status {
    EXPECT_TRUE(names.insert(hf_tensor_name(spec.name)).second) << spec.name;
    return {};
  });
  EXPECT_TRUE(status.has_value());
  EXPECT_EQ(names.size(), 3u + 2 * (9 + 3 + 2));
}

}  // namespace
}  // namespace triptych
