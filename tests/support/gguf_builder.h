// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// GgufBuilder: the bytes of a small GGUF file, right or wrong on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "engine/gguf.h"
#include "engine/model_config.h"
#include "engine/model_tensors.h"

namespace triptych {

/// `value` as little-endian bytes.
template <class T>
[[nodiscard]] std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

/// A GGUF string: length and text.
[[nodiscard]] inline std::string raw_string(std::string_view text) {
  return raw(static_cast<uint64_t>(text.size())) + std::string(text);
}

/// Builds the parts of a file one after another; every count and offset follows from what was
/// added unless a test overrides it.
class GgufBuilder {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  ///< Innermost first, as in the file.
    uint32_t type = 0;
    std::string data;
  };

  uint32_t version = 3;
  uint64_t alignment = 32;
  std::vector<std::pair<std::string, std::string>> keys;  ///< Key; type and value as bytes.
  std::vector<Tensor> tensors;

  GgufBuilder& add(std::string key, GgufType type, std::string value) {
    keys.emplace_back(std::move(key), raw(static_cast<uint32_t>(type)) + std::move(value));
    return *this;
  }
  GgufBuilder& add(std::string key, uint32_t value) {
    return add(std::move(key), GgufType::kUint32, raw(value));
  }
  GgufBuilder& add(std::string key, float value) {
    return add(std::move(key), GgufType::kFloat32, raw(value));
  }
  GgufBuilder& add(std::string key, bool value) {
    return add(std::move(key), GgufType::kBool, raw(static_cast<uint8_t>(value)));
  }
  GgufBuilder& add(std::string key, std::string_view value) {
    return add(std::move(key), GgufType::kString, raw_string(value));
  }
  GgufBuilder& add(std::string key, const std::vector<std::string>& values) {
    std::string bytes =
        raw(static_cast<uint32_t>(GgufType::kString)) + raw(static_cast<uint64_t>(values.size()));
    for (const std::string& value : values) bytes += raw_string(value);
    return add(std::move(key), GgufType::kArray, std::move(bytes));
  }
  GgufBuilder& add(std::string key, const std::vector<int32_t>& values) {
    std::string bytes =
        raw(static_cast<uint32_t>(GgufType::kInt32)) + raw(static_cast<uint64_t>(values.size()));
    for (const int32_t value : values) bytes += raw(value);
    return add(std::move(key), GgufType::kArray, std::move(bytes));
  }
  GgufBuilder& add(std::string key, const std::vector<float>& values) {
    std::string bytes =
        raw(static_cast<uint32_t>(GgufType::kFloat32)) + raw(static_cast<uint64_t>(values.size()));
    for (const float value : values) bytes += raw(value);
    return add(std::move(key), GgufType::kArray, std::move(bytes));
  }
  GgufBuilder& remove(std::string_view key) {
    std::erase_if(keys, [&](const auto& pair) { return pair.first == key; });
    return *this;
  }

  [[nodiscard]] std::string build() const {
    std::string file = "GGUF" + raw(version) + raw(static_cast<uint64_t>(tensors.size())) +
                       raw(static_cast<uint64_t>(keys.size()));
    for (const auto& [key, value] : keys) file += raw_string(key) + value;
    uint64_t offset = 0;
    std::string data;
    for (const Tensor& tensor : tensors) {
      file += raw_string(tensor.name) + raw(static_cast<uint32_t>(tensor.dims.size()));
      for (const uint64_t dim : tensor.dims) file += raw(dim);
      file += raw(tensor.type) + raw(offset);
      data += tensor.data;
      pad(data);
      offset = data.size();
    }
    pad(file);
    return file + data;
  }

 private:
  void pad(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  }
};

/// f32 values drawn uniformly from [-1, 1), as bytes.
[[nodiscard]] inline std::string random_floats(int64_t count, uint64_t seed) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    const double value = 2.0 * random_uniform(seed, static_cast<uint64_t>(i)) - 1.0;
    bytes += raw(static_cast<float>(value));
  }
  return bytes;
}

/// A whole Llama model of f32 tensors, two layers of hidden size 32, without a tokenizer.
[[nodiscard]] inline GgufBuilder tiny_llama_gguf() {
  GgufBuilder builder;
  builder.add("general.architecture", std::string_view("llama"))
      .add("llama.block_count", 2u)
      .add("llama.context_length", 128u)
      .add("llama.embedding_length", 32u)
      .add("llama.feed_forward_length", 64u)
      .add("llama.attention.head_count", 4u)
      .add("llama.attention.head_count_kv", 2u)
      .add("llama.rope.freq_base", 10000.0f)
      .add("llama.rope.dimension_count", 8u)
      .add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const auto tensor = [&](std::string name, uint64_t columns, uint64_t rows) {
    std::vector<uint64_t> dims{columns};
    if (rows > 0) dims.push_back(rows);
    const auto count = static_cast<int64_t>(columns * (rows > 0 ? rows : 1));
    builder.tensors.push_back(
        {std::move(name), std::move(dims), 0, random_floats(count, builder.tensors.size())});
  };
  tensor("token_embd.weight", 32, 40);
  for (const std::string& block : {std::string("blk.0."), std::string("blk.1.")}) {
    tensor(block + "attn_norm.weight", 32, 0);
    tensor(block + "attn_q.weight", 32, 32);
    tensor(block + "attn_k.weight", 32, 16);
    tensor(block + "attn_v.weight", 32, 16);
    tensor(block + "attn_output.weight", 32, 32);
    tensor(block + "ffn_norm.weight", 32, 0);
    tensor(block + "ffn_gate.weight", 32, 64);
    tensor(block + "ffn_up.weight", 32, 64);
    tensor(block + "ffn_down.weight", 64, 32);
  }
  tensor("output_norm.weight", 32, 0);
  tensor("output.weight", 32, 40);
  return builder;
}

}  // namespace triptych
