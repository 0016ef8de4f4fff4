// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <optional>

#include "base/strings.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/quantize.h"

namespace triptych {
namespace {

struct SchemeInfo {
  WeightScheme scheme;
  std::string_view name;
  std::optional<DType> linear;  ///< Type of the linear layers of the blocks; none: as stored.
  std::optional<DType> table;   ///< Type of embedding and lm_head unless they keep their own.
};
constexpr std::array<SchemeInfo, 6> kSchemes = {{
    {WeightScheme::kF32, "f32", DType::kF32, DType::kF32},
    {WeightScheme::kF16, "f16", DType::kF16, DType::kF16},
    {WeightScheme::kBF16, "bf16", DType::kBF16, DType::kBF16},
    {WeightScheme::kW4A16G32, "w4a16-g32", DType::kQ4_1, DType::kF16},
    {WeightScheme::kW4A16G64, "w4a16-g64", DType::kQ4_1_G64, DType::kF16},
    {WeightScheme::kStored, "stored", {}, {}},
}};

const SchemeInfo& scheme_info(WeightScheme scheme) { return kSchemes[static_cast<size_t>(scheme)]; }

constexpr float kLargestHalf = 65504.0f;

bool is_quantized(DType dtype) { return dtype_info(dtype).block_elements > 1; }

/// Brings the tensors of one checkpoint into the types of one scheme.
class Loader {
 public:
  Loader(std::shared_ptr<const Checkpoint> checkpoint, WeightScheme scheme)
      : scheme_(scheme_info(scheme)),
        pool_(cpu::available_cores()),
        weights_(std::make_shared<ModelWeights>()) {
    weights_->config = checkpoint->config();
    weights_->scheme = scheme;
    weights_->checkpoint = std::move(checkpoint);
  }

  Result<std::shared_ptr<const ModelWeights>> load();

 private:
  Result<std::vector<float>> vector(const std::string& name);
  Result<WeightView> linear(const std::string& name);
  Result<WeightView> table(const std::string& name);
  Result<WeightView> bring_to(const std::string& name, const WeightView& stored, DType dtype);
  Status convert(const std::string& name, const WeightView& stored, DType dtype, std::byte* out);
  Result<LayerWeights> layer(const std::string& prefix);

  const SchemeInfo& scheme_;
  cpu::ThreadPool pool_;
  std::shared_ptr<ModelWeights> weights_;
};

Result<std::vector<float>> Loader::vector(const std::string& name) {
  TRIPTYCH_TRY(const auto stored, weights_->checkpoint->tensor(name));
  std::vector<float> values(static_cast<size_t>(stored.columns));
  cpu::dequantize_row(stored, 0, values.data());
  return values;
}

Result<WeightView> Loader::linear(const std::string& name) {
  TRIPTYCH_TRY(const auto stored, weights_->checkpoint->tensor(name));
  return bring_to(name, stored, loaded_dtype(scheme_.scheme, stored.dtype, false));
}

Result<WeightView> Loader::table(const std::string& name) {
  TRIPTYCH_TRY(const auto stored, weights_->checkpoint->tensor(name));
  return bring_to(name, stored, loaded_dtype(scheme_.scheme, stored.dtype, true));
}

Result<WeightView> Loader::bring_to(const std::string& name, const WeightView& stored,
                                    DType dtype) {
  if (stored.dtype == dtype) {
    ++weights_->kept;
    return stored;
  }
  const DTypeInfo& info = dtype_info(dtype);
  if (stored.columns % info.block_elements != 0) {
    return fail(ErrorCode::kUnsupported,
                "tensor \"" + name + "\" has rows of " + std::to_string(stored.columns) +
                    " elements, which do not fit groups of " + std::to_string(info.block_elements) +
                    " (" + std::string(scheme_.name) + ")",
                weights_->checkpoint->origin());
  }
  WeightView view{nullptr, dtype, stored.rows, stored.columns};
  std::vector<std::byte> bytes(static_cast<size_t>(view.bytes()));
  TRIPTYCH_RETURN_IF_ERROR(convert(name, stored, dtype, bytes.data()));
  view.data = bytes.data();  // the heap block does not move with the vector
  weights_->storage.push_back(std::move(bytes));
  ++weights_->converted;
  return view;
}

Status Loader::convert(const std::string& name, const WeightView& stored, DType dtype,
                       std::byte* out) {
  // Every type but f32 and bf16 holds its values or its scales as f16.
  const bool limited = dtype != DType::kF32 && dtype != DType::kBF16;
  const int64_t bytes_per_row = row_bytes(dtype, stored.columns);
  std::atomic<bool> overflow{false};
  auto rows = [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<size_t>(stored.columns));
    for (int64_t r = begin; r < end; ++r) {
      cpu::dequantize_row(stored, r, row.data());
      // Negated, so that a NaN counts as not fitting.
      const bool fits =
          std::all_of(row.begin(), row.end(), [](float w) { return std::abs(w) <= kLargestHalf; });
      if (limited && !fits) {
        overflow.store(true, std::memory_order_relaxed);
        return;
      }
      quantize_row(row.data(), stored.columns, dtype, out + r * bytes_per_row);
    }
  };
  pool_.parallel_for(stored.rows, 1, rows);
  if (!overflow) return {};
  return fail(ErrorCode::kUnsupported,
              "tensor \"" + name + "\" has a weight that is not a number or beyond 65504, the " +
                  "largest f16",
              weights_->checkpoint->origin());
}

Result<LayerWeights> Loader::layer(const std::string& prefix) {
  LayerWeights layer;
  TRIPTYCH_TRY(layer.attn_norm, vector(prefix + "attn_norm"));
  TRIPTYCH_TRY(layer.q, linear(prefix + "q"));
  TRIPTYCH_TRY(layer.k, linear(prefix + "k"));
  TRIPTYCH_TRY(layer.v, linear(prefix + "v"));
  TRIPTYCH_TRY(layer.o, linear(prefix + "o"));
  if (weights_->config.qkv_bias) {
    TRIPTYCH_TRY(layer.q_bias, vector(prefix + "q_bias"));
    TRIPTYCH_TRY(layer.k_bias, vector(prefix + "k_bias"));
    TRIPTYCH_TRY(layer.v_bias, vector(prefix + "v_bias"));
  }
  if (weights_->config.qk_norm) {
    TRIPTYCH_TRY(layer.q_norm, vector(prefix + "q_norm"));
    TRIPTYCH_TRY(layer.k_norm, vector(prefix + "k_norm"));
  }
  TRIPTYCH_TRY(layer.ffn_norm, vector(prefix + "ffn_norm"));
  TRIPTYCH_TRY(layer.gate, linear(prefix + "gate"));
  TRIPTYCH_TRY(layer.up, linear(prefix + "up"));
  TRIPTYCH_TRY(layer.down, linear(prefix + "down"));
  return layer;
}

Result<std::shared_ptr<const ModelWeights>> Loader::load() {
  const ModelConfig& config = weights_->config;
  TRIPTYCH_TRY(weights_->embed, table("embed"));
  for (int64_t i = 0; i < config.num_layers; ++i) {
    TRIPTYCH_TRY(auto loaded, layer("layers." + std::to_string(i) + "."));
    weights_->layers.push_back(std::move(loaded));
  }
  TRIPTYCH_TRY(weights_->final_norm, vector("final_norm"));
  weights_->lm_head = weights_->embed;
  if (!config.tie_word_embeddings) {
    TRIPTYCH_TRY(weights_->lm_head, table("lm_head"));
  }
  return std::shared_ptr<const ModelWeights>(std::move(weights_));
}

}  // namespace

std::string_view weight_scheme_name(WeightScheme scheme) { return scheme_info(scheme).name; }

Result<WeightScheme> parse_weight_scheme(std::string_view text) {
  std::vector<std::string> names;
  for (const SchemeInfo& info : kSchemes) {
    if (info.name == text) return info.scheme;
    names.emplace_back(info.name);
  }
  return fail(
      ErrorCode::kInvalidArgument,
      "\"" + std::string(text) + "\" is no weight scheme, expected one of " + join(names, ", "));
}

DType loaded_dtype(WeightScheme scheme, DType stored, bool table) {
  const SchemeInfo& info = scheme_info(scheme);
  if (table) {
    const bool keep = info.linear && is_quantized(*info.linear) && is_quantized(stored);
    return keep ? stored : info.table.value_or(stored);
  }
  // All of these have 4-bit codes and a scale per 32 elements.
  const bool fine_enough =
      stored == DType::kQ4_0 || stored == DType::kQ4_1 || stored == DType::kQ4_K;
  const bool keep = scheme == WeightScheme::kW4A16G32 && fine_enough;
  return keep ? stored : info.linear.value_or(stored);
}

int64_t ModelWeights::bytes() const {
  int64_t total = embed.bytes();
  if (!config.tie_word_embeddings) total += lm_head.bytes();
  size_t vectors = final_norm.size();
  for (const LayerWeights& layer : layers) {
    for (const WeightView* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      total += matrix->bytes();
    }
    for (const std::vector<float>* vector :
         {&layer.attn_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.q_norm,
          &layer.k_norm, &layer.ffn_norm}) {
      vectors += vector->size();
    }
  }
  return total + static_cast<int64_t>(vectors * sizeof(float));
}

int64_t ModelWeights::bytes_per_decode_step() const {
  // The lm_head of a shard is a part of the embedding table that it is tied to.
  return bytes() - embed.bytes() + (config.tie_word_embeddings ? lm_head.bytes() : 0);
}

Result<std::shared_ptr<const ModelWeights>> load_weights(
    std::shared_ptr<const Checkpoint> checkpoint, WeightScheme scheme) {
  TRIPTYCH_CHECK(checkpoint != nullptr, "load_weights needs a checkpoint");
  return Loader(std::move(checkpoint), scheme).load();
}

}  // namespace triptych
