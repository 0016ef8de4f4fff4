// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Shapes of published models, and of small ones that tests run in milliseconds.
#include <array>

#include "base/strings.h"
#include "engine/model_config.h"

namespace triptych {
namespace {

ModelConfig tiny(const char* family) {
  ModelConfig config;
  config.architecture = family;
  config.hidden_size = 64;
  config.intermediate_size = 192;
  config.num_layers = 2;
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.vocab_size = 512;
  config.max_position = 2048;
  return config;
}

ModelConfig llama_tiny() { return tiny("llama"); }

ModelConfig mistral_tiny() {
  ModelConfig config = tiny("mistral");
  config.sliding_window = 24;  // short, so that the prompts of tests reach beyond it
  return config;
}

ModelConfig qwen2_tiny() {
  ModelConfig config = tiny("qwen2");
  config.rope_theta = 1e6;
  config.rms_norm_eps = 1e-6;
  config.tie_word_embeddings = true;
  return config;
}

ModelConfig qwen3_tiny() {
  ModelConfig config = tiny("qwen3");
  config.head_dim = 32;  // twice hidden_size / num_q_heads, as in Qwen3-0.6B
  config.rope_theta = 1e6;
  config.rms_norm_eps = 1e-6;
  return config;
}

ModelConfig smollm2_135m() {
  ModelConfig config;
  config.architecture = "llama";
  config.hidden_size = 576;
  config.intermediate_size = 1536;
  config.num_layers = 30;
  config.num_q_heads = 9;
  config.num_kv_heads = 3;
  config.head_dim = 64;
  config.vocab_size = 49152;
  config.max_position = 8192;
  config.rope_theta = 1e5;
  config.tie_word_embeddings = true;
  return config;
}

ModelConfig llama_3_1_8b() {
  ModelConfig config;
  config.architecture = "llama";
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_layers = 32;
  config.num_q_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 128256;
  config.max_position = 131072;
  config.rope_theta = 5e5;
  config.rope_scaling = {.kind = RopeScalingKind::kLlama3,
                         .factor = 8.0,
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_position = 8192.0};
  return config;
}

ModelConfig mistral_7b() {
  ModelConfig config = llama_3_1_8b();
  config.architecture = "mistral";
  config.vocab_size = 32000;
  config.max_position = 32768;
  config.rope_theta = 1e4;
  config.rope_scaling = {};
  config.sliding_window = 4096;
  return config;
}

ModelConfig qwen2_5_7b() {
  ModelConfig config;
  config.architecture = "qwen2";
  config.hidden_size = 3584;
  config.intermediate_size = 18944;
  config.num_layers = 28;
  config.num_q_heads = 28;
  config.num_kv_heads = 4;
  config.head_dim = 128;
  config.vocab_size = 152064;
  config.max_position = 131072;
  config.rope_theta = 1e6;
  config.rms_norm_eps = 1e-6;
  return config;
}

ModelConfig qwen3_8b() {
  ModelConfig config;
  config.architecture = "qwen3";
  config.hidden_size = 4096;
  config.intermediate_size = 12288;
  config.num_layers = 36;
  config.num_q_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 151936;
  config.max_position = 40960;
  config.rope_theta = 1e6;
  config.rms_norm_eps = 1e-6;
  return config;
}

struct SyntheticArch {
  const char* name;
  ModelConfig (*make)();
};
constexpr std::array<SyntheticArch, 9> kSyntheticArchs = {{
    {"llama-tiny", llama_tiny},
    {"mistral-tiny", mistral_tiny},
    {"qwen2-tiny", qwen2_tiny},
    {"qwen3-tiny", qwen3_tiny},
    {"smollm2-135m", smollm2_135m},
    {"llama-3.1-8b", llama_3_1_8b},
    {"mistral-7b", mistral_7b},
    {"qwen2.5-7b", qwen2_5_7b},
    {"qwen3-8b", qwen3_8b},
}};

}  // namespace

std::vector<std::string> synthetic_architectures() {
  std::vector<std::string> names;
  for (const SyntheticArch& known : kSyntheticArchs) names.emplace_back(known.name);
  return names;
}

Result<ModelConfig> synthetic_config(std::string_view arch) {
  for (const SyntheticArch& known : kSyntheticArchs) {
    if (arch != known.name) continue;
    ModelConfig config = known.make();
    const ModelFamily* family = find_family(config.architecture);
    config.qkv_bias = family->qkv_bias;
    config.qk_norm = family->qk_norm;
    config.name = "synthetic:" + std::string(arch);
    return config;
  }
  const std::vector<std::string> names = synthetic_architectures();
  const std::string near = nearest(arch, names);
  return fail(ErrorCode::kNotFound, "no synthetic architecture \"" + std::string(arch) + "\"" +
                                        (near.empty() ? "" : ", did you mean \"" + near + "\"?") +
                                        " (known: " + join(names, ", ") + ")");
}

}  // namespace triptych
