// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "base/hash.h"
#include "base/random.h"
#include "base/strings.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych {
namespace {

/// Changes when the numbers change, so that results of different weights are never mixed.
constexpr int kGeneration = 1;
constexpr int64_t kMostLayers = 10000;  // a hundred times what exists; a larger number is a slip
constexpr int64_t kChunk = 4096;  // elements made at a time: 16 KB of f32 stay in the first cache

/// How a tensor is drawn: mean + sigma * (about a standard normal).
struct Distribution {
  float mean;
  float sigma;
};

/// Keeps activations near 1: each matrix has variance 1 / inputs; the two that add to the residual
/// stream are smaller by sqrt(2 * layers), as in GPT-2; a tied embedding is also the lm_head, which
/// decides its scale.
Distribution distribution(const TensorSpec& spec, const ModelConfig& config) {
  // Biases and head norms move the scores by about as much as the products do, so that a model
  // which runs without them gives plainly other results.
  if (spec.name.ends_with("_bias")) return {0.0f, 0.5f};
  if (spec.name.ends_with(".q_norm") || spec.name.ends_with(".k_norm")) return {1.0f, 0.25f};
  if (spec.is_vector) return {1.0f, 0.1f};
  if (spec.name == "embed" && !config.tie_word_embeddings) return {0.0f, 1.0f};
  double sigma = 1.0 / std::sqrt(static_cast<double>(spec.columns));
  const bool residual = spec.name.ends_with(".o") || spec.name.ends_with(".down");
  if (residual) sigma /= std::sqrt(2.0 * static_cast<double>(config.num_layers));
  return {0.0f, static_cast<float>(sigma)};
}

/// The sum of four uniform 16-bit numbers, standardised: mean 0, variance 1, tails end at 3.46.
/// One draw of 64 bits an element; a true normal costs ten times as much.
float near_normal(uint64_t bits) {
  constexpr float kMean = 2.0f * 65535.0f;
  // The variance of one is (65536^2 - 1) / 12, so that of the sum is a third of 65536^2 - 1.
  constexpr float kInverseSigma = 1.7320508f / 65536.0f;
  const auto sum = static_cast<uint32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                         (bits >> 32 & 0xFFFF) + (bits >> 48));
  return (static_cast<float>(sum) - kMean) * kInverseSigma;
}

/// The first 16 hex digits of a 128-bit hash: a stream of its own for each name.
uint64_t tensor_stream(const std::string& name, uint64_t seed) {
  return mix64(seed) ^ std::stoull(content_hash(name).substr(0, 16), nullptr, 16);
}

class SyntheticCheckpoint final : public Checkpoint {
 public:
  SyntheticCheckpoint(ModelConfig config, std::string arch, uint64_t seed)
      : config_(std::move(config)), arch_(std::move(arch)), seed_(seed) {}

  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] Result<WeightView> tensor(std::string_view name) const override;
  [[nodiscard]] Result<DType> dtype(std::string_view) const override { return DType::kF16; }
  [[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer() const override { return nullptr; }
  [[nodiscard]] std::string hash() const override {
    return content_hash(str_format("synthetic %d %s layers=%lld seed=%llu", kGeneration,
                                   arch_.c_str(), static_cast<long long>(config_.num_layers),
                                   static_cast<unsigned long long>(seed_)));
  }
  [[nodiscard]] std::string origin() const override { return "synthetic:" + arch_; }

  Status index_tensors() {
    return for_each_tensor(config_, [this](const TensorSpec& spec) -> Status {
      tensors_[spec.name].spec = spec;
      return {};
    });
  }

 private:
  struct Tensor {
    TensorSpec spec;
    std::once_flag made;
    std::unique_ptr<Half[]> values;
  };

  void make(Tensor& tensor) const;

  ModelConfig config_;
  std::string arch_;
  uint64_t seed_;
  mutable std::map<std::string, Tensor, std::less<>> tensors_;  // nodes: a once_flag cannot move
};

void SyntheticCheckpoint::make(Tensor& tensor) const {
  const int64_t count = tensor.spec.rows * tensor.spec.columns;
  // Not zeroed first: each thread is then the first to touch the pages that it fills.
  tensor.values = std::make_unique_for_overwrite<Half[]>(static_cast<size_t>(count));
  auto fill = [&](int64_t begin, int64_t end, int) {
    synthetic_values(config_, seed_, tensor.spec, begin,
                     {tensor.values.get() + begin, static_cast<size_t>(end - begin)});
  };
  // Starting threads costs more than a small tensor.
  const int threads = count >= 64 * kChunk ? cpu::available_cores() : 1;
  cpu::ThreadPool(threads).parallel_for(count, kChunk, fill);
}

Result<WeightView> SyntheticCheckpoint::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return fail(ErrorCode::kNotFound, "no tensor \"" + std::string(name) + "\"", origin());
  }
  Tensor& tensor = found->second;
  std::call_once(tensor.made, [&] { make(tensor); });
  return WeightView{reinterpret_cast<const std::byte*>(tensor.values.get()), DType::kF16,
                    tensor.spec.rows, tensor.spec.columns};
}

}  // namespace

void synthetic_values(const ModelConfig& config, uint64_t seed, const TensorSpec& spec,
                      int64_t first, std::span<Half> out) {
  const Distribution drawn = distribution(spec, config);
  const uint64_t stream = tensor_stream(spec.name, seed);
  std::array<float, kChunk> chunk;
  const auto count = static_cast<int64_t>(out.size());
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t size = std::min(kChunk, count - at);
    for (int64_t i = 0; i < size; ++i) {
      const uint64_t bits = random_bits(stream, static_cast<uint64_t>(first + at + i));
      chunk[static_cast<size_t>(i)] = drawn.mean + drawn.sigma * near_normal(bits);
    }
    cpu::to_half(chunk.data(), out.data() + at, size);
  }
}

Result<std::shared_ptr<const Checkpoint>> make_synthetic(ModelConfig config, std::string identity,
                                                         uint64_t seed) {
  TRIPTYCH_RETURN_IF_ERROR(validate(config, config.name));
  auto checkpoint =
      std::make_shared<SyntheticCheckpoint>(std::move(config), std::move(identity), seed);
  TRIPTYCH_RETURN_IF_ERROR(checkpoint->index_tensors());
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

Result<std::shared_ptr<const Checkpoint>> open_synthetic(const ModelRef& ref) {
  TRIPTYCH_TRY(ModelConfig config, synthetic_config(ref.synthetic));
  if (ref.layers < 0 || ref.layers > kMostLayers) {
    return fail(
        ErrorCode::kInvalidArgument,
        str_format("layers is %lld, expected 0 (as in the architecture) to %lld",
                   static_cast<long long>(ref.layers), static_cast<long long>(kMostLayers)));
  }
  if (ref.layers > 0) config.num_layers = ref.layers;
  return make_synthetic(std::move(config), ref.synthetic, ref.seed);
}

}  // namespace triptych
