// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/device_weights_cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <map>
#include <mutex>

namespace triptych {

namespace {

// Of each group: what a tensor map and 16-byte loads ask for, with room to spare.
constexpr int64_t kAlignment = 256;

template <class T>
void convert(const float* from, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    const T value(from[i]);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

}  // namespace

std::shared_ptr<const DeviceWeights> DeviceWeights::of(const ModelWeights& weights) {
  static std::mutex mutex;
  // A ModelWeights outlives the engines that use it, so its address names it as long as the entry
  // is alive.
  static std::map<const ModelWeights*, std::weak_ptr<const DeviceWeights>> all;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const DeviceWeights> found = all[&weights].lock();
  if (found == nullptr) {
    found = std::make_shared<const DeviceWeights>(weights);
    all[&weights] = found;
  }
  return found;
}

DeviceWeights::DeviceWeights(const ModelWeights& weights) {
  const auto matrix = [](const WeightView& w) { return Source{w.data, w.bytes(), 0, false, 0}; };
  const auto vector = [](const std::vector<float>& v) {
    const auto size = static_cast<int64_t>(v.size());
    return Source{v.data(), 2 * size, 0, true, size};
  };
  using Together = std::initializer_list<Source>;
  place(Together{matrix(weights.embed)});
  if (weights.lm_head.data != weights.embed.data) place(Together{matrix(weights.lm_head)});
  place(Together{vector(weights.final_norm)});
  for (const LayerWeights& w : weights.layers) {
    place(Together{matrix(w.q), matrix(w.k), matrix(w.v)});
    place(Together{matrix(w.o)});
    place(Together{matrix(w.gate), matrix(w.up)});
    place(Together{matrix(w.down)});
    place(Together{vector(w.attn_norm)});
    place(Together{vector(w.ffn_norm)});
    place(Together{vector(w.q_bias), vector(w.k_bias), vector(w.v_bias)});
    place(Together{vector(w.q_norm)});
    place(Together{vector(w.k_norm)});
  }
  upload(weights);
}

void DeviceWeights::place(std::span<const Source> together) {
  bytes_ = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  for (Source source : together) {
    if (source.bytes == 0) continue;
    source.offset = bytes_;
    bytes_ += source.bytes;
    offsets_[source.host] = source.offset;
    sources_.push_back(source);
  }
}

void DeviceWeights::upload(const ModelWeights& weights) {
  block_ = DeviceBuffer<std::byte>(static_cast<size_t>(bytes_));
  std::vector<std::byte> converted;
  for (const Source& source : sources_) {
    const void* from = source.host;
    if (source.is_vector) {
      converted.resize(static_cast<size_t>(source.bytes));
      const auto* values = static_cast<const float*>(source.host);
      if (weights.embed.dtype == DType::kBF16) {
        convert<__nv_bfloat16>(values, source.size, converted.data());
      } else {
        convert<__half>(values, source.size, converted.data());
      }
      from = converted.data();
    }
    TRIPTYCH_CUDA_CHECK(cudaMemcpy(block_.data() + source.offset, from,
                                   static_cast<size_t>(source.bytes), cudaMemcpyHostToDevice));
  }
  // A copy from pageable memory may still be under way, and other streams do not wait for it.
  TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());
}

const std::byte* DeviceWeights::at(const void* host) const {
  const auto found = offsets_.find(host);
  TRIPTYCH_CHECK(found != offsets_.end(), "a weight of another model");
  return block_.data() + found->second;
}

}  // namespace triptych
