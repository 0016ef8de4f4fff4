// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/weight_shapes.h"

#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "engine/model_tensors.h"

namespace triptych {
namespace {

/// Where a tensor has its place; one of the two is null.
struct Place {
  WeightView* matrix = nullptr;
  std::vector<float>* vector = nullptr;
};

Place place_in_layer(LayerWeights& layer, std::string_view name) {
  const std::pair<std::string_view, WeightView*> matrices[] = {
      {"q", &layer.q},       {"k", &layer.k},   {"v", &layer.v},      {"o", &layer.o},
      {"gate", &layer.gate}, {"up", &layer.up}, {"down", &layer.down}};
  const std::pair<std::string_view, std::vector<float>*> vectors[] = {
      {"attn_norm", &layer.attn_norm}, {"q_bias", &layer.q_bias}, {"k_bias", &layer.k_bias},
      {"v_bias", &layer.v_bias},       {"q_norm", &layer.q_norm}, {"k_norm", &layer.k_norm},
      {"ffn_norm", &layer.ffn_norm}};
  for (const auto& [known, matrix] : matrices) {
    if (known == name) return {matrix, nullptr};
  }
  for (const auto& [known, vector] : vectors) {
    if (known == name) return {nullptr, vector};
  }
  TRIPTYCH_CHECK(false, "a tensor that no layer has: " + std::string(name));
}

Place place_of(ModelWeights& weights, std::string_view name) {
  if (name == "embed") return {&weights.embed, nullptr};
  if (name == "lm_head") return {&weights.lm_head, nullptr};
  if (name == "final_norm") return {nullptr, &weights.final_norm};
  constexpr std::string_view kLayers = "layers.";
  TRIPTYCH_CHECK(name.starts_with(kLayers), "a tensor of no layer: " + std::string(name));
  name.remove_prefix(kLayers.size());
  size_t layer = 0;
  const char* end = std::from_chars(name.data(), name.data() + name.size(), layer).ptr;
  TRIPTYCH_CHECK(layer < weights.layers.size(), "a layer beyond the config");
  name.remove_prefix(static_cast<size_t>(end - name.data()) + 1);
  return place_in_layer(weights.layers[layer], name);
}

}  // namespace

Result<std::shared_ptr<const ModelWeights>> weight_shapes(
    std::shared_ptr<const Checkpoint> checkpoint, WeightScheme scheme) {
  TRIPTYCH_CHECK(checkpoint != nullptr, "weight_shapes needs a checkpoint");
  auto weights = std::make_shared<ModelWeights>();
  weights->config = checkpoint->config();
  weights->scheme = scheme;
  weights->layers.resize(static_cast<size_t>(weights->config.num_layers));
  TRIPTYCH_RETURN_IF_ERROR(for_each_tensor(weights->config, [&](const TensorSpec& spec) -> Status {
    const Place place = place_of(*weights, spec.name);
    if (place.vector != nullptr) {
      place.vector->resize(static_cast<size_t>(spec.columns));
      return {};
    }
    TRIPTYCH_TRY(const DType stored, checkpoint->dtype(spec.name));
    const bool table = spec.name == "embed" || spec.name == "lm_head";
    const DType dtype = loaded_dtype(scheme, stored, table);
    *place.matrix = {nullptr, dtype, spec.rows, spec.columns};
    return {};
  }));
  if (weights->config.tie_word_embeddings) weights->lm_head = weights->embed;
  weights->checkpoint = std::move(checkpoint);
  return std::shared_ptr<const ModelWeights>(std::move(weights));
}

}  // namespace triptych
