// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/device_weights_cuda.h"

#include <cstring>

#include "kernels/common/cuda_check.h"
#include "tests/support/cuda_engine.h"
#include "tests/support/device_numbers.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

class DeviceWeightsCuda : public GpuTest {
 protected:
  static ModelConfig config() {
    ModelConfig c = base_config();
    c.qkv_bias = c.qk_norm = true;
    return c;
  }
  static std::vector<std::byte> from_device(const std::byte* memory, int64_t bytes) {
    std::vector<std::byte> host(static_cast<size_t>(bytes));
    TRIPTYCH_CUDA_CHECK(cudaMemcpy(host.data(), memory, host.size(), cudaMemcpyDeviceToHost));
    return host;
  }
  static void expect_matrix(const DeviceWeights& device, const WeightView& w) {
    const std::vector<std::byte> copy = from_device(device.at(w.data), w.bytes());
    EXPECT_EQ(std::memcmp(copy.data(), w.data, copy.size()), 0);
  }
  template <class T>
  static void expect_vector(const DeviceWeights& device, const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    const std::vector<std::byte> copy = from_device(device.at(values.data()), bytes);
    for (size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, copy.data() + i * sizeof(T), sizeof(T));
      ASSERT_EQ(Rounding<T>::to(value), Rounding<T>::to(Rounding<T>::from(values[i])));
    }
  }
  template <class T>
  static void expect_model(DType dtype) {
    const auto weights = model_of(config(), dtype, 3);
    const DeviceWeights device(*weights);
    expect_matrix(device, weights->embed);
    expect_matrix(device, weights->lm_head);
    expect_vector<T>(device, weights->final_norm);
    for (const LayerWeights& w : weights->layers) {
      for (const WeightView* m : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down}) {
        expect_matrix(device, *m);
      }
      for (const std::vector<float>* v :
           {&w.attn_norm, &w.ffn_norm, &w.q_bias, &w.k_bias, &w.v_bias, &w.q_norm, &w.k_norm}) {
        expect_vector<T>(device, *v);
      }
    }
  }
};

TEST_F(DeviceWeightsCuda, MatricesAreCopiedAndVectorsConverted) {
  expect_model<__half>(DType::kF16);
  expect_model<__nv_bfloat16>(DType::kBF16);
}

TEST_F(DeviceWeightsCuda, WhatOneProductReadsLiesBackToBack) {
  const auto weights = model_of(config(), DType::kF16, 3);
  const DeviceWeights device(*weights);
  for (const LayerWeights& w : weights->layers) {
    EXPECT_EQ(device.at(w.k.data), device.at(w.q.data) + w.q.bytes());
    EXPECT_EQ(device.at(w.v.data), device.at(w.k.data) + w.k.bytes());
    EXPECT_EQ(device.at(w.up.data), device.at(w.gate.data) + w.gate.bytes());
    EXPECT_EQ(device.at(w.k_bias.data()), device.at(w.q_bias.data()) + 2 * w.q_bias.size());
    EXPECT_EQ(device.at(w.v_bias.data()), device.at(w.k_bias.data()) + 2 * w.k_bias.size());
    for (const void* first :
         {static_cast<const void*>(w.q.data), static_cast<const void*>(w.o.data),
          static_cast<const void*>(w.attn_norm.data())}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(device.at(first)) % 256, 0u);
    }
  }
}

TEST_F(DeviceWeightsCuda, ATiedHeadIsNotCopiedTwice) {
  ModelConfig tied = config();
  tied.tie_word_embeddings = true;
  const auto weights = model_of(tied, DType::kF16, 3);
  const DeviceWeights device(*weights);
  EXPECT_EQ(device.at(weights->lm_head.data), device.at(weights->embed.data));
}

TEST_F(DeviceWeightsCuda, EnginesOfOneModelShareThem) {
  const auto weights = model_of(config(), DType::kF16, 3);
  const auto other = model_of(config(), DType::kF16, 4);
  auto first = DeviceWeights::of(*weights);
  auto second = DeviceWeights::of(*weights);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, DeviceWeights::of(*other));
  const std::weak_ptr<const DeviceWeights> watched = first;
  first.reset();
  EXPECT_FALSE(watched.expired());
  second.reset();
  EXPECT_TRUE(watched.expired()) << "gone with the last user";
  expect_matrix(*DeviceWeights::of(*weights), weights->embed);
}

}  // namespace
}  // namespace triptych
