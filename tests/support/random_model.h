// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Small models with random weights, made by hand: no file, no loader.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/weights.h"
#include "kernels/quantize.h"

namespace triptych {

/// A model small enough to run thousands of times: 3 layers, hidden size 64, 4 query heads and 2 KV
/// heads of 16, vocabulary 97.
[[nodiscard]] inline ModelConfig tiny_config() {
  ModelConfig config;
  config.name = "random";
  config.architecture = "llama";
  config.hidden_size = 64;
  config.intermediate_size = 128;
  config.num_layers = 3;
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.vocab_size = 97;
  config.max_position = 512;
  return config;
}

/// Matrices ~ N(0, 1/columns) stored as `dtype`, embedding and lm_head as f16, norms near 1. The
/// embedding is scaled up to N(0, 1) so that the residual stream starts at order one.
[[nodiscard]] inline std::shared_ptr<ModelWeights> random_model(const ModelConfig& config,
                                                                DType dtype, uint64_t seed) {
  auto weights = std::make_shared<ModelWeights>();
  weights->config = config;
  uint64_t stream = seed << 16;
  const auto matrix = [&](int64_t rows, int64_t columns, DType type, double scale) {
    std::vector<std::byte> bytes(static_cast<size_t>(rows * row_bytes(type, columns)));
    std::vector<float> row(static_cast<size_t>(columns));
    ++stream;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        row[c] = static_cast<float>(scale *
                                    random_normal(stream, static_cast<uint64_t>(r * columns + c)));
      }
      quantize_row(row.data(), columns, type, bytes.data() + r * row_bytes(type, columns));
    }
    weights->storage.push_back(std::move(bytes));  // moving keeps the bytes where they are
    return WeightView{weights->storage.back().data(), type, rows, columns};
  };
  const auto linear = [&](int64_t rows, int64_t columns) {
    return matrix(rows, columns, dtype, 1.0 / std::sqrt(static_cast<double>(columns)));
  };
  const auto vector = [&](int64_t size, double mean, double sigma) {
    std::vector<float> values(static_cast<size_t>(size));
    ++stream;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(mean + sigma * random_normal(stream, i));
    }
    return values;
  };
  const auto norm = [&] { return vector(config.hidden_size, 1.0, 0.2); };
  const int64_t hidden = config.hidden_size;
  const int64_t q_columns = config.num_q_heads * config.head_dim;
  const int64_t kv_columns = config.num_kv_heads * config.head_dim;
  weights->embed = matrix(config.vocab_size, hidden, DType::kF16, 1.0);
  weights->lm_head = config.tie_word_embeddings
                         ? weights->embed
                         : matrix(config.vocab_size, hidden, DType::kF16, 0.3);
  weights->final_norm = norm();
  for (int64_t i = 0; i < config.num_layers; ++i) {
    LayerWeights layer;
    layer.attn_norm = norm();
    layer.q = linear(q_columns, hidden);
    layer.k = linear(kv_columns, hidden);
    layer.v = linear(kv_columns, hidden);
    layer.o = linear(hidden, q_columns);
    if (config.qkv_bias) {
      layer.q_bias = vector(q_columns, 0.0, 0.5);
      layer.k_bias = vector(kv_columns, 0.0, 0.5);
      layer.v_bias = vector(kv_columns, 0.0, 0.5);
    }
    if (config.qk_norm) {
      layer.q_norm = vector(config.head_dim, 1.0, 0.3);
      layer.k_norm = vector(config.head_dim, 1.0, 0.3);
    }
    layer.ffn_norm = norm();
    layer.gate = linear(config.intermediate_size, hidden);
    layer.up = linear(config.intermediate_size, hidden);
    layer.down = linear(hidden, config.intermediate_size);
    weights->layers.push_back(std::move(layer));
  }
  return weights;
}

/// `count` token ids below vocab_size.
[[nodiscard]] inline std::vector<int32_t> random_tokens(RandomStream& random, int64_t count,
                                                        int64_t vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab_size)));
  }
  return tokens;
}

}  // namespace triptych
