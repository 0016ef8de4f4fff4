// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "engine/model_tensors.h"
#include "kernels/common/half.h"
#include "kernels/cpu/linear.h"
#include "kernels/quantize.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_path.h"
#include "tests/support/random_weights.h"

namespace triptych {
namespace {

/// A model in memory with tensors of any type.
class FakeCheckpoint final : public Checkpoint {
 public:
  /// Every tensor is drawn uniformly from [-1, 1) and stored as what `dtype_of` says.
  FakeCheckpoint(const ModelConfig& config, const std::function<DType(const TensorSpec&)>& dtype_of)
      : config_(config) {
    uint64_t seed = 0;
    EXPECT_TRUE(for_each_tensor(config_, [&](const TensorSpec& spec) -> Status {
                  store(spec, dtype_of(spec), random_floats(spec.rows * spec.columns, seed++));
                  return {};
                }).has_value());
  }
  /// Replaces one value of a tensor, which must be f32.
  void set(const std::string& name, size_t index, float value) {
    std::memcpy(bytes_.at(name).data() + index * sizeof(float), &value, sizeof(value));
  }

  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] Result<WeightView> tensor(std::string_view name) const override {
    const auto found = views_.find(std::string(name));
    if (found == views_.end()) return fail(ErrorCode::kNotFound, "no " + std::string(name));
    return found->second;
  }
  [[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer() const override { return nullptr; }
  [[nodiscard]] std::string hash() const override { return "fake"; }
  [[nodiscard]] std::string origin() const override { return "fake"; }

 private:
  void store(const TensorSpec& spec, DType dtype, const std::string& floats) {
    WeightView view{nullptr, dtype, spec.rows, spec.columns};
    std::vector<std::byte>& bytes = bytes_[spec.name];
    bytes.resize(static_cast<size_t>(view.bytes()));
    std::vector<float> row(static_cast<size_t>(spec.columns));
    const size_t row_size = row.size() * sizeof(float);
    for (int64_t r = 0; r < spec.rows; ++r) {
      std::memcpy(row.data(), floats.data() + static_cast<size_t>(r) * row_size, row_size);
      std::byte* out = bytes.data() + r * row_bytes(dtype, spec.columns);
      if (is_only_read(dtype)) {
        const RandomWeights weights(static_cast<uint64_t>(r), dtype, 1, spec.columns);
        std::memcpy(out, weights.view().data, static_cast<size_t>(weights.view().bytes()));
      } else {
        quantize_row(row.data(), spec.columns, dtype, out);
      }
    }
    view.data = bytes.data();
    views_[spec.name] = view;
  }

  static bool is_only_read(DType dtype) {
    return dtype == DType::kQ4_0 || dtype == DType::kQ5_0 || dtype == DType::kQ5_1 ||
           dtype == DType::kQ4_K || dtype == DType::kQ5_K || dtype == DType::kQ6_K;
  }

  ModelConfig config_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, WeightView> views_;
};

std::shared_ptr<FakeCheckpoint> make_checkpoint(DType linear, DType table) {
  return std::make_shared<FakeCheckpoint>(
      *synthetic_config("llama-tiny"), [=](const TensorSpec& spec) {
        if (spec.is_vector) return DType::kF32;
        return spec.name == "embed" || spec.name == "lm_head" ? table : linear;
      });
}

std::shared_ptr<const ModelWeights> load(std::shared_ptr<const Checkpoint> checkpoint,
                                         WeightScheme scheme) {
  const auto weights = load_weights(std::move(checkpoint), scheme);
  if (!weights) {
    ADD_FAILURE() << weights.error().to_string();
    return nullptr;
  }
  return *weights;
}

std::vector<float> floats(const WeightView& view) {
  std::vector<float> all(static_cast<size_t>(view.rows * view.columns));
  for (int64_t r = 0; r < view.rows; ++r) {
    cpu::dequantize_row(view, r, all.data() + r * view.columns);
  }
  return all;
}

double largest_difference(const WeightView& a, const WeightView& b) {
  const auto x = floats(a);
  const auto y = floats(b);
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(x[i]) - y[i]));
  }
  return largest;
}

constexpr int64_t kMatrices = 2 * 7 + 2;  // llama-tiny: two layers, embed, lm_head

TEST(WeightScheme, NamesGoThereAndBack) {
  for (const auto scheme : {WeightScheme::kF32, WeightScheme::kF16, WeightScheme::kW4A16G32,
                            WeightScheme::kW4A16G64, WeightScheme::kBF16, WeightScheme::kStored}) {
    const auto parsed = parse_weight_scheme(weight_scheme_name(scheme));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(*parsed, scheme);
  }
  EXPECT_EQ(weight_scheme_name(WeightScheme::kW4A16G32), "w4a16-g32");
  const auto wrong = parse_weight_scheme("w4");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(wrong.error().message.find("f32, f16, bf16, w4a16-g32, w4a16-g64, stored"),
            std::string::npos);
}

TEST(LoadWeights, F16IsViewedNotCopied) {
  const auto checkpoint = make_checkpoint(DType::kF16, DType::kF16);
  const auto weights = load(checkpoint, WeightScheme::kF16);
  EXPECT_EQ(weights->kept, kMatrices);
  EXPECT_EQ(weights->converted, 0);
  EXPECT_TRUE(weights->storage.empty());
  EXPECT_EQ(weights->layers[1].down.data, checkpoint->tensor("layers.1.down")->data);
  EXPECT_EQ(weights->embed.data, checkpoint->tensor("embed")->data);
  EXPECT_EQ(weights->lm_head.data, checkpoint->tensor("lm_head")->data);
}

TEST(LoadWeights, F32HoldsTheExactValues) {
  for (const DType stored : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1}) {
    const auto checkpoint = make_checkpoint(stored, DType::kQ8_0);
    const auto weights = load(checkpoint, WeightScheme::kF32);
    EXPECT_EQ(weights->layers[0].q.dtype, DType::kF32);
    EXPECT_EQ(floats(weights->layers[0].q), floats(*checkpoint->tensor("layers.0.q")));
    EXPECT_EQ(floats(weights->embed), floats(*checkpoint->tensor("embed")));
    EXPECT_EQ(weights->kept + weights->converted, kMatrices);
    EXPECT_EQ(weights->kept, stored == DType::kF32 ? 14 : 0);
  }
}

TEST(LoadWeights, Bf16RoundsEveryMatrix) {
  const auto checkpoint = make_checkpoint(DType::kF32, DType::kF16);
  const auto weights = load(checkpoint, WeightScheme::kBF16);
  EXPECT_EQ(weights->converted, kMatrices);
  EXPECT_EQ(weights->embed.dtype, DType::kBF16);
  const auto exact = floats(*checkpoint->tensor("layers.0.gate"));
  const auto rounded = floats(weights->layers[0].gate);
  for (size_t i = 0; i < exact.size(); ++i) {
    // Half a unit in the last of 8 bits.
    ASSERT_LE(std::abs(rounded[i] - exact[i]), std::abs(exact[i]) / 256);
  }
}

TEST(LoadWeights, F16RoundsToNearest) {
  const auto checkpoint = make_checkpoint(DType::kF32, DType::kQ8_0);
  const auto weights = load(checkpoint, WeightScheme::kF16);
  EXPECT_EQ(weights->converted, kMatrices);
  EXPECT_EQ(weights->embed.dtype, DType::kF16);
  const auto exact = floats(*checkpoint->tensor("layers.0.gate"));
  const auto rounded = floats(weights->layers[0].gate);
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(rounded[i], half_to_float(half_from_float(exact[i])));
  }
}

TEST(LoadWeights, Groups32TakeStoredCodesOver) {
  for (const DType stored : {DType::kQ4_1, DType::kQ4_0}) {
    const auto checkpoint = make_checkpoint(stored, DType::kQ8_0);
    const auto weights = load(checkpoint, WeightScheme::kW4A16G32);
    EXPECT_EQ(weights->kept, kMatrices);
    EXPECT_EQ(weights->converted, 0);
    EXPECT_EQ(weights->layers[0].v.data, checkpoint->tensor("layers.0.v")->data);
    EXPECT_EQ(weights->layers[0].v.dtype, stored);
    EXPECT_EQ(weights->lm_head.dtype, DType::kQ8_0);
  }
}

/// llama-tiny with rows long enough for the types of 256 elements a block.
std::shared_ptr<FakeCheckpoint> make_wide_checkpoint(
    const std::function<DType(const TensorSpec&)>& dtype_of) {
  ModelConfig config = *synthetic_config("llama-tiny");
  config.num_q_heads = config.num_kv_heads = 256 / config.head_dim;
  config.hidden_size = config.intermediate_size = 256;
  return std::make_shared<FakeCheckpoint>(config, [&](const TensorSpec& spec) {
    return spec.is_vector ? DType::kF32 : dtype_of(spec);
  });
}

// As in a Q4_K_M file: Q6_K for v, down and the tables, Q4_K elsewhere.
DType mixed_types(const TensorSpec& spec) {
  const bool fine = spec.name.ends_with(".v") || spec.name.ends_with(".down");
  return fine || !spec.name.starts_with("layers.") ? DType::kQ6_K : DType::kQ4_K;
}

TEST(LoadWeights, Groups32KeepQ4KAndQuantizeFinerCodes) {
  const auto checkpoint = make_wide_checkpoint(mixed_types);
  const auto weights = load(checkpoint, WeightScheme::kW4A16G32);
  EXPECT_EQ(weights->layers[0].q.data, checkpoint->tensor("layers.0.q")->data);
  EXPECT_EQ(weights->layers[0].q.dtype, DType::kQ4_K);
  EXPECT_EQ(weights->layers[0].v.dtype, DType::kQ4_1);
  EXPECT_EQ(weights->embed.dtype, DType::kQ6_K);
  EXPECT_EQ(weights->converted, 4);
  EXPECT_EQ(weights->kept, kMatrices - 4);
}

TEST(LoadWeights, StoredTakesEveryTypeAsItIs) {
  for (const DTypeInfo& info : kDTypes) {
    const auto checkpoint = make_wide_checkpoint([&](const TensorSpec&) { return info.dtype; });
    const auto weights = load(checkpoint, WeightScheme::kStored);
    ASSERT_NE(weights, nullptr);
    EXPECT_EQ(weights->kept, kMatrices) << info.name;
    EXPECT_EQ(weights->converted, 0);
    EXPECT_TRUE(weights->storage.empty());
    EXPECT_EQ(weights->layers[1].down.data, checkpoint->tensor("layers.1.down")->data);
    EXPECT_EQ(weights->layers[1].down.dtype, info.dtype);
    EXPECT_EQ(weights->embed.data, checkpoint->tensor("embed")->data);
    EXPECT_EQ(weights->lm_head.dtype, info.dtype);
  }
  const auto mixed = load(make_wide_checkpoint(mixed_types), WeightScheme::kStored);
  EXPECT_EQ(mixed->layers[0].k.dtype, DType::kQ4_K);
  EXPECT_EQ(mixed->layers[0].v.dtype, DType::kQ6_K);
  const int64_t layer = 5 * 256 * 256 / 256 * 144 + 2 * 256 * 256 / 256 * 210;
  EXPECT_EQ(mixed->bytes(), 2 * layer + 2 * 512 * 210 + 5 * 256 * 4);
}

TEST(LoadWeights, Groups32QuantizeTheRestAndLeaveTablesAlone) {
  for (const DType stored : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const auto checkpoint = make_checkpoint(stored, DType::kF16);
    const auto weights = load(checkpoint, WeightScheme::kW4A16G32);
    EXPECT_EQ(weights->layers[1].up.dtype, DType::kQ4_1);
    EXPECT_EQ(weights->embed.dtype, DType::kF16);
    EXPECT_EQ(weights->kept, 2);
    EXPECT_EQ(weights->converted, 14);
    // Values lie in [-1, 1): a step is at most 2/15, the error half of it, and the f16 rounding of
    // scale and minimum adds 15 * 2^-11 * 2/15 + 2^-11.
    EXPECT_LT(largest_difference(weights->layers[1].up, *checkpoint->tensor("layers.1.up")),
              1.0 / 15 + 3.0 / 2048);
  }
}

TEST(LoadWeights, Groups64AreAlwaysMadeHere) {
  const auto checkpoint = make_checkpoint(DType::kQ4_1, DType::kQ8_0);
  const auto weights = load(checkpoint, WeightScheme::kW4A16G64);
  EXPECT_EQ(weights->layers[0].q.dtype, DType::kQ4_1_G64);
  EXPECT_EQ(weights->embed.dtype, DType::kQ8_0);
  EXPECT_EQ(weights->kept, 2);
  EXPECT_EQ(weights->converted, 14);
  EXPECT_LT(largest_difference(weights->layers[0].q, *checkpoint->tensor("layers.0.q")),
            1.0 / 15 + 3.0 / 2048);
}

TEST(LoadWeights, TablesOfFloatsBecomeF16UnderAQuantizedScheme) {
  const auto weights = load(make_checkpoint(DType::kQ4_1, DType::kF32), WeightScheme::kW4A16G32);
  EXPECT_EQ(weights->embed.dtype, DType::kF16);
  EXPECT_EQ(weights->converted, 2);
}

TEST(LoadWeights, RowsMustFitTheGroup) {
  ModelConfig config = *synthetic_config("llama-tiny");
  config.hidden_size = 96;  // a multiple of 32, not of 64
  const auto checkpoint =
      std::make_shared<FakeCheckpoint>(config, [](const TensorSpec&) { return DType::kF32; });
  EXPECT_TRUE(load_weights(checkpoint, WeightScheme::kW4A16G32).has_value());
  const auto weights = load_weights(checkpoint, WeightScheme::kW4A16G64);
  ASSERT_FALSE(weights.has_value());
  EXPECT_EQ(weights.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(weights.error().message.find("\"layers.0.q\" has rows of 96"), std::string::npos);
}

TEST(LoadWeights, WeightsBeyondF16AreRefusedByName) {
  for (const float bad : {65505.0f, -1e9f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const auto checkpoint = make_checkpoint(DType::kF32, DType::kF16);
    checkpoint->set("layers.1.o", 100, bad);
    for (const auto scheme : {WeightScheme::kF16, WeightScheme::kW4A16G32}) {
      const auto weights = load_weights(checkpoint, scheme);
      ASSERT_FALSE(weights.has_value());
      EXPECT_EQ(weights.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(weights.error().message.find("\"layers.1.o\""), std::string::npos);
    }
    EXPECT_TRUE(load_weights(checkpoint, WeightScheme::kF32).has_value());
  }
  const auto checkpoint = make_checkpoint(DType::kF32, DType::kF16);
  checkpoint->set("layers.1.o", 100, 65504.0f);
  EXPECT_TRUE(load_weights(checkpoint, WeightScheme::kF16).has_value());
}

TEST(LoadWeights, CountsBytes) {
  const ModelConfig config = *synthetic_config("llama-tiny");
  const int64_t norms = (2 * 2 + 1) * 64;
  const int64_t table = 512 * 64;
  const int64_t linear = config.num_parameters() - norms - 2 * table;
  const auto checkpoint = make_checkpoint(DType::kF16, DType::kF16);
  const auto f16 = load(checkpoint, WeightScheme::kF16);
  EXPECT_EQ(f16->bytes(), 2 * (linear + 2 * table) + 4 * norms);
  EXPECT_EQ(f16->bytes_per_decode_step(), f16->bytes() - 2 * table);
  const auto q4 = load(checkpoint, WeightScheme::kW4A16G32);
  EXPECT_EQ(q4->bytes(), linear / 32 * 20 + 2 * 2 * table + 4 * norms);

  ModelConfig tied_config = config;
  tied_config.tie_word_embeddings = true;
  const auto tied = load(
      std::make_shared<FakeCheckpoint>(tied_config, [](const TensorSpec&) { return DType::kF16; }),
      WeightScheme::kF16);
  EXPECT_EQ(tied->lm_head.data, tied->embed.data);
  EXPECT_EQ(tied->bytes(), 2 * (linear + table) + 4 * norms);
  EXPECT_EQ(tied->bytes_per_decode_step(), tied->bytes());
  EXPECT_EQ(tied->kept, kMatrices - 1);
}

TEST(LoadWeights, ErrorsOfTheCheckpointComeThrough) {
  ModelConfig config = *synthetic_config("llama-tiny");
  config.num_layers = 1;
  class Shorter final : public Checkpoint {
   public:
    explicit Shorter(const ModelConfig& shorter)
        : full_(*synthetic_config("llama-tiny")),
          inner_(shorter, [](const TensorSpec&) { return DType::kF16; }) {}
    const ModelConfig& config() const override { return full_; }
    Result<WeightView> tensor(std::string_view name) const override { return inner_.tensor(name); }
    std::shared_ptr<const Tokenizer> tokenizer() const override { return nullptr; }
    std::string hash() const override { return ""; }
    std::string origin() const override { return ""; }

   private:
    ModelConfig full_;
    FakeCheckpoint inner_;
  };
  const auto weights = load_weights(std::make_shared<Shorter>(config), WeightScheme::kF16);
  ASSERT_FALSE(weights.has_value());
  EXPECT_EQ(weights.error().code, ErrorCode::kNotFound);
}

TEST(LoadWeights, RealModelUnderEveryScheme) {
  TRIPTYCH_SKIP_WITHOUT_MODEL();
  const auto checkpoint = open_gguf(model_path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().to_string();
  const auto q4 = load(*checkpoint, WeightScheme::kW4A16G32);
  EXPECT_EQ(q4->kept, 211);
  EXPECT_EQ(q4->converted, 0);
  const auto f16 = load(*checkpoint, WeightScheme::kF16);
  EXPECT_EQ(f16->converted, 211);
  EXPECT_EQ(f16->bytes(), 2 * (134515008 - 61 * 576) + 4 * 61 * 576);
  const auto g64 = load(*checkpoint, WeightScheme::kW4A16G64);
  EXPECT_EQ(g64->kept, 1);
  EXPECT_LT(g64->bytes(), q4->bytes());
}

}  // namespace
}  // namespace triptych
