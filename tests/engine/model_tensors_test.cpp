// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_tensors.h"

#include <gtest/gtest.h>

#include <set>

namespace triptych {
namespace {

TEST(ModelTensors, CoverEveryParameterOnce) {
  for (const char* arch :
       {"llama-tiny", "smollm2-135m", "mistral-tiny", "qwen2-tiny", "qwen3-tiny"}) {
    const ModelConfig config = *synthetic_config(arch);
    std::set<std::string> names;
    int64_t parameters = 0;
    const Status status = for_each_tensor(config, [&](const TensorSpec& spec) -> Status {
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      EXPECT_EQ(spec.is_vector, spec.name.ends_with("norm") || spec.name.ends_with("_bias"));
      parameters += spec.rows * spec.columns;
      return {};
    });
    EXPECT_TRUE(status.has_value());
    EXPECT_EQ(parameters, config.num_parameters());
    EXPECT_EQ(names.contains("lm_head"), !config.tie_word_embeddings);
  }
}

TEST(ModelTensors, StopAtTheFirstError) {
  int visited = 0;
  const Status status =
      for_each_tensor(*synthetic_config("llama-tiny"), [&](const TensorSpec& spec) -> Status {
        ++visited;
        if (spec.name == "layers.0.q") return fail(ErrorCode::kCorrupt, "stop");
        return {};
      });
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "stop");
  EXPECT_EQ(visited, 3);
}

}  // namespace
}  // namespace triptych
